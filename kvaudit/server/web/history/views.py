"""Audit history: every result, filtered, in slices."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render

from kvaudit.server import clock
from kvaudit.server.audits.state.history_query import page_of
from kvaudit.server.web.history import page as table
from kvaudit.server.web.kit.page import SignedIn, page
from kvaudit.server.web.kit.parts.saved_views import saved_views_of


@page()
def history(request: SignedIn) -> HttpResponse:
    filters = table.Filters.from_query(request.GET)
    found = page_of(table.question(request.user, filters), below=filters.below)
    context = {
        "section": "history",
        "now": clock.now(),
        "filters": filters,
        "found": found,
        "rows": [(row, found.builds.at(row.deployment_id, row.observed_at)) for row in found.rows],
        "saved": saved_views_of(request, "history"),
        **table.choices(),
    }
    return render(request, "history/history.html", context)
