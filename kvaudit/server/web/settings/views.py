"""Settings: one line for each, with its state now."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render

from kvaudit.server import clock
from kvaudit.server.web.kit.page import SignedIn, page
from kvaudit.server.web.settings.page import groups


@page()
def settings(request: SignedIn) -> HttpResponse:
    now = clock.now()
    context = {"section": "settings", "now": now, "groups": groups(request.user, now)}
    return render(request, "settings/settings.html", context)
