"""Fleet: is any tenant at risk right now?"""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render

from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.accounts.access import can_somewhere
from kvaudit.server.notify.models import Channel
from kvaudit.server.web.fleet import lab_views
from kvaudit.server.web.fleet import page as table
from kvaudit.server.web.fleet.headline import headline
from kvaudit.server.web.fleet.items import ITEMS
from kvaudit.server.web.kit.listing import sorted_page
from kvaudit.server.web.kit.page import SignedIn, page
from kvaudit.server.web.kit.parts import machines
from kvaudit.server.web.kit.parts.saved_views import saved_views_of


def _nobody_told(request: SignedIn) -> bool:
    """Whether no channel is on, where the reader is one who could make one."""
    if not can_somewhere(request.user, "manage_channels"):
        return False
    return not Channel.objects.filter(enabled=True).exists()


@page()
def fleet(request: SignedIn) -> HttpResponse:
    filters = table.Filters.from_query(request.GET)
    rows = table.all_rows(request.user)
    found = table.matching(rows, filters)
    shown = sorted_page(found, lambda row: table.sort_key(row, filters.sort), filters, size=table.PAGE_SIZE)
    context = {
        "section": "fleet",
        "now": clock.now(),
        "headline": headline(rows),
        "filters": filters,
        "rows": table.filled(shown.rows),
        "page": shown,
        "items": ITEMS,
        "verdicts": [verdict.value for verdict in Verdict],
        "teams": sorted({row.team for row in rows}),
        "engines": table.engines(request.user) if rows else [],
        "sorts": table.SORTS.items(),
        "saved": saved_views_of(request, "fleet"),
        "may_import": can_somewhere(request.user, "edit_fleet"),
        "nobody_told": _nobody_told(request),
        "troubles": machines.troubles(request.user),
        "may_start_lab": not rows and lab_views.may_start(request),
    }
    return render(request, "fleet/fleet.html", context)
