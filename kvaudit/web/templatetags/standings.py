"""Tags of the compliance pages. Thin: what they do lives in `kvaudit.web.standing_marks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import template
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from kvaudit.checklists.items import Item
from kvaudit.checklists.matrix import Row
from kvaudit.checklists.standing import Status
from kvaudit.web import standing_marks

register = template.Library()


@register.simple_tag
def standing(status: Status | str, word: str = "") -> SafeString:
    return standing_marks.mark(Status(status), word)


@register.simple_tag
def standing_shape(status: Status | str) -> SafeString:
    return standing_marks.shape(Status(status))


@register.simple_tag(takes_context=True)
def cells(context: Mapping[str, Any], row: Row, columns: Sequence[Item], address: str) -> SafeString:
    """The cells of a row. ``address`` is that of the deployment; an item of another team is blank."""
    from kvaudit.web import standing_marks as marks

    now, suffix = context["moment"], context.get("suffix", "")
    shown = []
    for item in columns:
        cell = row.cells.get(item.key)
        if cell is None or cell.item.team_id != item.team_id:
            shown.append(("<td></td>",))
            continue
        shown.append(
            (marks.cell(cell, f"{item.key} {item.title}", f"{address}items/{item.key}/{suffix}", now),)
        )
    return format_html_join("", "{}", [(_safe(html),) for (html,) in shown])


def _safe(html: str) -> SafeString:
    return html if isinstance(html, SafeString) else SafeString(html)
