"""Run passive checks: an operator asks for a run outside the schedule."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render

from kvaudit.server import clock
from kvaudit.server.audits import services
from kvaudit.server.audits.models import Where
from kvaudit.server.audits.state.standing import ACCUMULATING
from kvaudit.server.web.kit.page import SignedIn, deployment_or_404, page, require
from kvaudit.server.web.kit.parts.audit_kinds import able_active, left_out
from kvaudit.server.web.kit.parts.run_progress import progress_of
from kvaudit.server.web.runs.views import NOT_YOURS


@page("POST")
def audit_now(request: SignedIn, slug: str) -> HttpResponse:
    """Starts the checks that only read, or (kind=active) those that send prompts, or (kind=qualify) what qualifies the
    build while its replicas take no traffic.

    Answers with the live part (htmx) or goes to the run's page."""
    deployment = deployment_or_404(request.user, slug)
    require(request.user, "run_audits", deployment.team, NOT_YOURS)
    try:
        kind = request.POST.get("kind")
        wanted = able_active(deployment) if kind in ("active", "qualify") else []
        where = Where.PRODUCTION
        if kind == "qualify":
            wanted, where = [check for check in wanted if check in ACCUMULATING], Where.DRAINED
        if kind in ("active", "qualify") and not wanted:
            raise services.AuditProblem("No check that sends prompts can run here yet: see what is missing.")
        run = services.audit_now(deployment=deployment, actor=request.user, checks=wanted, where=where)
    except services.AuditProblem as problem:
        messages.error(request, str(problem))
        return _to_deployment(request, slug)
    if request.headers.get("HX-Request"):
        progress = progress_of(run, may_cancel=True)
        context = {
            "now": clock.now(),
            "progress": progress,
            "live": progress.live,
            "left_out": left_out(run),
            "begun": True,
        }
        return render(request, "kit/run_progress.html", context)
    if said := left_out(run):
        messages.warning(request, said)
    return redirect("run", run.pk)


def _to_deployment(request: SignedIn, slug: str) -> HttpResponse:
    """Where the message is shown; htmx follows a header instead of a redirect."""
    response = redirect("deployment", slug)
    if request.headers.get("HX-Request"):
        return HttpResponse(headers={"HX-Redirect": response["Location"]})
    return response
