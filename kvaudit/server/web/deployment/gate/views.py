"""May a node take traffic? For platform engineers: the gate's answer and the line that asks it."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import render

from kvaudit.server import clock
from kvaudit.server.web.deployment.gate.page import gate_page
from kvaudit.server.web.kit.page import SignedIn, deployment_or_404, page


@page()
def gate(request: SignedIn, slug: str) -> HttpResponse:
    deployment = deployment_or_404(request.user, slug)
    context = {
        "section": "fleet",
        "now": clock.now(),
        "deployment": deployment,
        "shown": gate_page(deployment, settings.BASE_URL),
    }
    return render(request, "deployment/gate.html", context)
