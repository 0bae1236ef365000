"""Deployment: what happened here and why?"""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone

from kvaudit.accounts.access import can
from kvaudit.web.audit_kinds import able_active
from kvaudit.web.figures import timeline
from kvaudit.web.page import SignedIn, deployment_or_404, page
from kvaudit.web.tables.deployment import deployment_page
from kvaudit.web.tables.progress import progress_of


@page()
def deployment(request: SignedIn, slug: str) -> HttpResponse:
    found = deployment_or_404(request.user, slug)
    shown = deployment_page(found)
    context = {
        "section": "fleet",
        "now": timezone.now(),
        "shown": shown,
        "deployment": found,
        "timeline": timeline.figure_of(found),
        "progress": progress_of(shown.pending) if shown.pending else None,
        "may_run": can(request.user, "run_audits", found.team_id),
        "may_pause": can(request.user, "pause_probes", found.team_id),
        "may_consent": can(request.user, "give_consent", found.team_id),
        "may_edit": can(request.user, "edit_fleet", found.team_id),
        "active_checks": able_active(found),
        "may_plan": can(request.user, "edit_plans", found.team_id),
    }
    return render(request, "deployment/deployment.html", context)
