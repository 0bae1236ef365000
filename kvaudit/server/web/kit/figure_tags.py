"""Filters of the figures' tables."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from kvaudit.server.web.kit import untrusted

register = template.Library()


@register.filter
def cell(value: object) -> SafeString:
    """A cell: what we built goes in as it is, numbers get their separators, all else is foreign text."""
    if isinstance(value, SafeString):
        return value
    if value is None:
        return format_html('<span class="{}">unknown</span>', "unknown")
    if isinstance(value, int) and not isinstance(value, bool):
        return format_html("{}", f"{value:,}")
    return untrusted.block(value, 200)
