"""Tags of the compliance pages. Thin: what they do lives in `kvaudit.server.web.compliance.badges`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import template
from django.utils.safestring import SafeString

from kvaudit.server.checklists.evaluation import Status
from kvaudit.server.checklists.items import Item
from kvaudit.server.checklists.matrix import Row
from kvaudit.server.web.compliance import badges

register = template.Library()


@register.simple_tag
def standing(status: Status | str, word: str = "") -> SafeString:
    return badges.mark(Status(status), word)


@register.simple_tag(takes_context=True)
def compliance_row(context: Mapping[str, Any], row: Row, columns: Sequence[Item]) -> SafeString:
    return badges.drawn(row, columns, context.get("suffix", ""), context["moment"])
