"""Deployment: what happened here and why? An overview, and tabs that are addresses."""

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
from kvaudit.server.audits.state.status import status_of
from kvaudit.server.checklists.models import Assessed
from kvaudit.server.fleet.models import Consent, Deployment, Pause
from kvaudit.server.fleet.services import retire_deployment
from kvaudit.server.incidents.assessments import assessment
from kvaudit.server.inquiries.request_logs.production import lengths_of
from kvaudit.server.web.deployment import page as tabs
from kvaudit.server.web.deployment.capacity import capacity_of
from kvaudit.server.web.deployment.figures import capacity as pools
from kvaudit.server.web.deployment.figures import prefill
from kvaudit.server.web.kit.page import SignedIn, deployment_or_404, page, require
from kvaudit.server.web.kit.parts.audit_kinds import able_active
from kvaudit.server.web.kit.parts.pool_bar import from_measures
from kvaudit.server.web.kit.parts.run_progress import progress_of
from kvaudit.server.web.kit.parts.timeline import figure as timeline

NOT_YOURS = "A deployment is retired by operators of its team."


def _frame(request: SignedIn, found: Deployment, tab: str) -> dict[str, Any]:
    """What every tab has above itself: the status, and what may be run now."""
    status = status_of(found)
    may_run = can(request.user, "run_audits", found.team_id) and not found.retired_at
    return {
        "section": "fleet",
        "now": clock.now(),
        "tab": tab,
        "deployment": found,
        "status": status,
        "said": assessment(found, status),
        "pauses": list(Pause.objects.current().applying_to(found)),
        "may_run": may_run,
        "active_checks": able_active(found) if may_run else [],
        "may_edit": can(request.user, "edit_fleet", found.team_id),
    }


@page()
def deployment(request: SignedIn, slug: str) -> HttpResponse:
    """What is, why, and what to do."""
    found = deployment_or_404(request.user, slug)
    frame = _frame(request, found, "overview")
    run = tabs.pending(found, frame["status"])
    context = frame | {
        "shown": tabs.overview(found, frame["status"]),
        "controls": Assessed.objects.filter(pk=found.pk).standings().rows[0].controls,
        "progress": progress_of(run, may_cancel=frame["may_run"]) if run else None,
    }
    return render(request, "deployment/overview.html", context)


@page()
def checks(request: SignedIn, slug: str) -> HttpResponse:
    found = deployment_or_404(request.user, slug)
    frame = _frame(request, found, "checks")
    context = frame | {
        "shown": tabs.checks_tab(found, frame["status"]),
        "checklist": Assessed.objects.filter(pk=found.pk).standings().rows[0],
    }
    return render(request, "deployment/checks.html", context)


@page()
def capacity(request: SignedIn, slug: str) -> HttpResponse:
    found = deployment_or_404(request.user, slug)
    frame = _frame(request, found, "capacity")
    measures = _pool_measures(frame["status"])
    context = frame | {
        "bar": from_measures(measures),
        "capacity": capacity_of(measures, lengths_of(found)),
        "capacity_figure": pools.figure_of(found),
        "prefill_figure": prefill.figure_of(found),
    }
    return render(request, "deployment/capacity.html", context)


def _pool_measures(status: DeploymentStatus) -> Mapping[str, Any] | None:
    """What the pool check last measured."""
    now = status.checks.get("pool")
    if now is None or now.result_id is None:
        return None
    found = Result.objects.filter(pk=now.result_id).values_list("measures", flat=True).first()
    return found if isinstance(found, dict) else None


@page()
def history(request: SignedIn, slug: str) -> HttpResponse:
    found = deployment_or_404(request.user, slug)
    context = _frame(request, found, "history") | {
        "shown": tabs.history_tab(found),
        "timeline": timeline.figure_of(found, tabs.plans_for(found)),
    }
    return render(request, "deployment/history.html", context)


@page()
def nodes(request: SignedIn, slug: str) -> HttpResponse:
    found = deployment_or_404(request.user, slug)
    context = _frame(request, found, "nodes") | {"nodes": tabs.nodes_of(found)}
    return render(request, "deployment/nodes.html", context)


@page()
def settings(request: SignedIn, slug: str) -> HttpResponse:
    """What is declared, when it is audited, and what may be sent to it."""
    found = deployment_or_404(request.user, slug)
    frame = _frame(request, found, "settings")
    context = frame | {
        "plans": tabs.plans_for(found),
        "consent": Consent.objects.current().filter(deployment=found).first(),
        "suspended": any(pause.suspended for pause in frame["pauses"]),
        "paused_here": any(pause.deployment_id for pause in frame["pauses"]),
        "may_pause": can(request.user, "pause_probes", found.team_id),
        "may_consent": can(request.user, "give_consent", found.team_id),
        "may_plan": can(request.user, "edit_plans", found.team_id),
    }
    return render(request, "deployment/settings.html", context)


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
