"""Run: what exactly was tested? And, while it is on its way, how far it is."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from kvaudit.server import clock
from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import User
from kvaudit.server.audits import services
from kvaudit.server.audits.models import Run
from kvaudit.server.web.kit.page import SignedIn, page, require
from kvaudit.server.web.kit.parts.audit_kinds import left_out
from kvaudit.server.web.kit.parts.run_progress import progress_of
from kvaudit.server.web.runs.page import run_page

NOT_YOURS = "Audits are started and cancelled by operators of the deployment's team."


@page()
def run(request: SignedIn, pk: int) -> HttpResponse:
    found = _run_or_404(request.user, pk)
    team = found.deployment.team_id
    may_run = can(request.user, "run_audits", team)
    context = {
        "section": "fleet",
        "now": clock.now(),
        "shown": run_page(found, request.user),
        "run": found,
        "progress": None if found.ended else progress_of(found, may_cancel=may_run, on_run_page=True),
        "left_out": left_out(found),
        "may_run": may_run,
        "may_read": can(request.user, "read_evidence", team),
        "may_view_ledger": can(request.user, "view_ledger"),
    }
    return render(request, "runs/run.html", context)


@page()
def progress(request: SignedIn, pk: int) -> HttpResponse:
    """The part that htmx replaces every second; without it, a page of its own would be the run's."""
    if not request.headers.get("HX-Request"):
        return redirect("run", pk)
    found = _run_or_404(request.user, pk)
    on_run_page = request.GET.get("page") == "run"
    may_run = can(request.user, "run_audits", found.deployment.team_id)
    shown = progress_of(found, may_cancel=may_run, on_run_page=on_run_page)
    context = {"now": clock.now(), "progress": shown, "live": shown.live, "left_out": left_out(found)}
    response = render(request, "kit/run_progress.html", context)
    if found.ended and on_run_page:
        response["HX-Refresh"] = "true"  # the results are on the page around this part
    return response


@page("POST")
def cancel(request: SignedIn, pk: int) -> HttpResponse:
    found = _run_or_404(request.user, pk)
    require(request.user, "run_audits", found.deployment.team, NOT_YOURS)
    if found.ended:
        messages.warning(request, f"Run {pk} had already ended.")
    else:
        stopped = services.request_cancel(run=found, actor=request.user)
        if stopped:
            messages.success(request, f"Run {pk} stops before its next step.")
        else:
            messages.warning(request, f"Run {pk} had just ended.")
    return redirect("run", pk)


def _run_or_404(user: User, pk: int) -> Run:
    runs = Run.objects.visible_to(user).with_results().select_related("cancel_requested_by")
    return get_object_or_404(runs, pk=pk)
