"""Help: keys, verdicts, the pool bar, and what each check asks."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render

from kvaudit.auditor import checks
from kvaudit.server.web.kit.page import SignedIn, page


@page()
def help_page(request: SignedIn) -> HttpResponse:
    return render(request, "help/help.html", {"checks": list(checks.CHECKS.values())})
