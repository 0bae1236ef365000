"""Tags of the fleet's table. Thin: what they do lives in `kvaudit.server.web.fleet.rows`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template
from django.utils.safestring import SafeString

from kvaudit.server import clock
from kvaudit.server.web.fleet import rows
from kvaudit.server.web.fleet.page import FleetRow

register = template.Library()


@register.simple_tag(takes_context=True)
def fleet_row(context: Mapping[str, Any], row: FleetRow) -> SafeString:
    return rows.drawn(row, context.get("now") or clock.now())
