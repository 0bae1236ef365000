"""Audit now: an operator asks for a run outside the schedule."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from kvaudit.web.page import SignedIn, deployment_or_404, page, require
from kvaudit.web.tables.progress import progress_of
from kvaudit.web.views.run import NOT_YOURS


@page("POST")
def audit_now(request: SignedIn, slug: str) -> HttpResponse:
    """Starts the passive checks; answers with the live part (htmx) or goes to the run's page."""
    deployment = deployment_or_404(request.user, slug)
    require(request.user, "run_audits", deployment.team, NOT_YOURS)
    if deployment.retired_at is not None:
        messages.error(request, f"{slug} is retired, so there is nothing to audit.")
        return redirect("deployment", slug)
    from kvaudit.audits import services

    run = services.request_run(deployment=deployment, actor=request.user)
    if request.headers.get("HX-Request"):
        context = {"now": timezone.now(), "progress": progress_of(run), "may_run": True}
        return render(request, "run/progress.html", context)
    return redirect("run", run.pk)
