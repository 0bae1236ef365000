"""Deployment: what happened here and why?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render

from kvaudit.server import clock
from kvaudit.server.accounts.access import can
from kvaudit.server.audits.models import Result
from kvaudit.server.audits.state.deployment_status import DeploymentStatus
from kvaudit.server.checklists.models import Assessed
from kvaudit.server.fleet.services import retire_deployment
from kvaudit.server.inquiries.request_logs.production import lengths_of
from kvaudit.server.web.deployment.capacity import capacity_of
from kvaudit.server.web.deployment.figures import capacity, prefill
from kvaudit.server.web.deployment.page import deployment_page
from kvaudit.server.web.kit.page import SignedIn, deployment_or_404, page, require
from kvaudit.server.web.kit.parts.run_progress import progress_of
from kvaudit.server.web.kit.parts.timeline import figure as timeline

NOT_YOURS = "A deployment is retired by operators of its team."


def _pool_measures(status: DeploymentStatus) -> Mapping[str, Any] | None:
    """What the pool check last measured."""
    now = status.checks.get("pool")
    if now is None or now.result_id is None:
        return None
    found = Result.objects.filter(pk=now.result_id).values_list("measures", flat=True).first()
    return found if isinstance(found, dict) else None


@page()
def deployment(request: SignedIn, slug: str) -> HttpResponse:
    found = deployment_or_404(request.user, slug)
    shown = deployment_page(found)
    may_run = can(request.user, "run_audits", found.team_id)
    context = {
        "section": "fleet",
        "now": clock.now(),
        "shown": shown,
        "deployment": found,
        "checklist": Assessed.objects.filter(pk=found.pk).standings().rows[0],
        "timeline": timeline.figure_of(found, shown.plans),
        "capacity": capacity_of(_pool_measures(shown.status), lengths_of(found)),
        "capacity_figure": capacity.figure_of(found),
        "prefill_figure": prefill.figure_of(found),
        "progress": progress_of(shown.pending, may_cancel=may_run) if shown.pending else None,
        "may_run": may_run,
        "may_pause": can(request.user, "pause_probes", found.team_id),
        "may_consent": can(request.user, "give_consent", found.team_id),
        "may_edit": can(request.user, "edit_fleet", found.team_id),
        "active_checks": shown.active_checks,
        "may_plan": can(request.user, "edit_plans", found.team_id),
    }
    return render(request, "deployment/deployment.html", context)


@page("GET", "POST")
def retire(request: SignedIn, slug: str) -> HttpResponse:
    """Asks before it does, since the keys are gone then."""
    found = deployment_or_404(request.user, slug)
    require(request.user, "edit_fleet", found.team, NOT_YOURS)
    if request.method == "POST":
        retire_deployment(deployment=found, actor=request.user)
        messages.success(request, "The deployment was retired. What was found stays on record.")
    if found.retired_at:
        return redirect("deployment", slug)
    return render(request, "deployment/retire.html", {"section": "fleet", "deployment": found})
