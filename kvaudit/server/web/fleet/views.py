"""Fleet: is any tenant at risk right now?"""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render

from kvaudit.server import clock
from kvaudit.server.accounts.access import can_somewhere
from kvaudit.server.audits.state.tiers import Tier
from kvaudit.server.incidents.models import Incident
from kvaudit.server.notify.models import Channel
from kvaudit.server.web.fleet import lab_views
from kvaudit.server.web.fleet import page as table
from kvaudit.server.web.fleet.headline import headline
from kvaudit.server.web.kit.listing import sorted_page
from kvaudit.server.web.kit.page import SignedIn, page
from kvaudit.server.web.kit.parts import machines
from kvaudit.server.web.kit.parts.saved_views import saved_views_of

MOST_INCIDENTS = 3


def _nobody_told(request: SignedIn) -> bool:
    """Whether no channel is on, where the reader is one who could make one."""
    if not can_somewhere(request.user, "manage_channels"):
        return False
    return not Channel.objects.filter(enabled=True).exists()


def _at_work(request: SignedIn) -> list[Incident]:
    """Incidents whose deployments are not back in traffic, newest first; one more than are shown."""
    rows = Incident.objects.visible_to(request.user).filter(state__in=("open", "mitigated"))
    return list(rows.select_related("deployment").order_by("-id")[: MOST_INCIDENTS + 1])


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
        "tiers": [(tier.value, tier.label) for tier in Tier],
        "incidents": _at_work(request),
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
