"""Tenants' keys of the whole fleet at a glance; they are set on a deployment's own page and shown nowhere."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render

from kvaudit.server import clock
from kvaudit.server.web.kit.page import SignedIn, page
from kvaudit.server.web.settings.keys import page as table


@page()
def keys(request: SignedIn) -> HttpResponse:
    filters = table.Filters.from_query(request.GET)
    context = {
        "section": "settings",
        "now": clock.now(),
        "page": table.listed(request.user, filters),
        "filters": filters,
    }
    return render(request, "settings/keys.html", context)
