"""Tags and filters of every page. Thin: what they do lives in `kvaudit.web`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django import template
from django.http import QueryDict
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from kvaudit.web import advisory_links, foreign, marks, moments, poolbar
from kvaudit.web.items import ItemStanding

register = template.Library()

register.simple_tag(marks.mark, name="verdict")
register.simple_tag(marks.of_run, name="run_verdict")
register.simple_tag(marks.shape, name="shape")
register.simple_tag(poolbar.drawn, name="pool_bar")
register.filter("inline", foreign.inline)
register.filter("block", foreign.block)
register.filter("plain", foreign.plain)
register.filter("spelled", foreign.spelled)
register.filter("span", moments.span)
register.filter("advisories", advisory_links.linked)


@register.simple_tag(takes_context=True)
def item_mark(context: Mapping[str, Any], standing: ItemStanding) -> SafeString:
    """One of the five marks of a row, with the age of its last pass."""
    now = context.get("now") or timezone.now()
    passed = moments.brief(now - standing.passed) if standing.passed else "never"
    said = f"{standing.sentence}; last passed {passed}{' ago' if standing.passed else ''}"
    return marks.numbered(standing.verdict, standing.item.number, passed, said)


@register.filter
def kind(value: object) -> str:
    return marks.kind(value)


@register.simple_tag(takes_context=True)
def age(context: Mapping[str, Any], moment: datetime | None, absent: str = "never") -> SafeString:
    """``now`` in the context keeps every age of a page against one instant."""
    return moments.age(moment, context.get("now"), absent)


@register.simple_tag
def stamp(moment: datetime | None, absent: str = "never") -> SafeString:
    return moments.stamp(moment, absent)


@register.filter
def number(value: object) -> str:
    """681280 -> ``681,280``; a fraction keeps at most four digits; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


@register.filter
def few(names: Sequence[str]) -> str:
    """``pool, version, drift and 5 more``."""
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"


@register.filter
def is_list(value: object) -> bool:
    return isinstance(value, list)


@register.simple_tag(takes_context=True)
def due(context: Mapping[str, Any], moment: datetime | None, lead: str = "next ") -> SafeString:
    """``next in 40 min``; a due time that has passed is said as such."""
    now = context.get("now") or timezone.now()
    if moment is not None and moment < now:
        return format_html("due {}", moments.age(moment, now))
    return format_html("{}{}", lead if moment else "", moments.age(moment, now, "not planned"))


@register.simple_tag(takes_context=True)
def url_with(context: Mapping[str, Any], **changes: object) -> str:
    """The current query string with some parameters changed; empty ones fall away.

    A change of anything else forgets the page, since its position means nothing in another order.
    """
    query: QueryDict = context["request"].GET.copy()
    if not {"after", "before"} & changes.keys():
        for name in ("after", "before"):
            query.pop(name, None)
    for name, value in changes.items():
        query.pop(name, None)
        if value not in (None, ""):
            query[name] = str(value)
    pairs = [(name, value) for name, values in query.lists() for value in values if value]
    return "?" + urlencode(pairs)
