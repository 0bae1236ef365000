"""Tags and filters of every page. Thin: what they do lives in `kvaudit.server.web.kit`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django import template
from django.http import QueryDict
from django.utils.safestring import SafeString

from kvaudit.auditor import checks
from kvaudit.server.audits.state.tiers import Tier
from kvaudit.server.web.kit import advisory_links, badges, times, untrusted
from kvaudit.server.web.kit.parts import pool_bar

register = template.Library()

register.simple_tag(badges.mark, name="verdict")
register.simple_tag(badges.of_run, name="run_verdict")
register.simple_tag(badges.of_tier, name="tier")
register.simple_tag(badges.shape, name="shape")
register.simple_tag(pool_bar.drawn, name="pool_bar")
register.filter("inline", untrusted.inline)
register.filter("block", untrusted.block)
register.filter("plain", untrusted.plain)
register.filter("spelled", untrusted.spelled)
register.filter("few", untrusted.few)
register.filter("span", times.span)
register.filter("advisories", advisory_links.linked)


@register.filter
def check_name(check: object) -> str:
    return untrusted.plain(checks.label(str(check)), 40)


@register.filter
def kind_of_tier(tier: Tier) -> str:
    return badges.KIND_OF_TIER[tier]


@register.filter
def kind(value: object) -> str:
    return badges.kind(value)


@register.simple_tag(takes_context=True)
def age(context: Mapping[str, Any], moment: datetime | None, absent: str = "never") -> SafeString:
    """``now`` in the context keeps every age of a page against one instant."""
    return times.age(moment, context.get("now"), absent)


@register.simple_tag
def stamp(moment: datetime | None, absent: str = "never") -> SafeString:
    return times.stamp(moment, absent)


@register.filter
def number(value: object) -> str:
    """681280 -> ``681,280``; a fraction keeps at most four digits; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


@register.filter
def is_list(value: object) -> bool:
    return isinstance(value, list)


@register.simple_tag(takes_context=True)
def due(context: Mapping[str, Any], moment: datetime | None, lead: str = "next ") -> SafeString:
    return times.due(moment, context.get("now"), lead)


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
