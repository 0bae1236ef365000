"""The session API of a deployment: read what would be sent, and approve it as a second person."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect, render

from kvaudit.server import clock
from kvaudit.server.accounts.access import can
from kvaudit.server.fleet.session_approval import ApprovalProblem, approve_session, why_not, withdraw_approval
from kvaudit.server.web.deployment.session_plan.page import session_page
from kvaudit.server.web.kit import untrusted
from kvaudit.server.web.kit.page import SignedIn, deployment_or_404, page, require

NOT_YOURS = (
    "The steps of a session API are approved by approvers of the deployment's team; operators may withdraw."
)


@page("GET", "POST")
def session_plan(request: SignedIn, slug: str) -> HttpResponse:
    deployment = deployment_or_404(request.user, slug)
    if request.method == "POST":
        act = request.POST.get("act")
        if act not in ("approve", "withdraw"):
            return HttpResponseBadRequest("There is no such act.")
        require(request.user, "approve" if act == "approve" else "edit_fleet", deployment.team, NOT_YOURS)
        try:
            if act == "approve":
                approve_session(
                    deployment=deployment,
                    digest=untrusted.query_text(request.POST.get("digest"), 64),
                    actor=request.user,
                    reason=untrusted.query_text(request.POST.get("reason"), 500),
                )
                messages.success(request, "Approved: the check session may ask exactly these steps.")
            else:
                withdraw_approval(deployment=deployment, actor=request.user)
                messages.success(
                    request, "Withdrawn: the check session asks nothing before it is approved again."
                )
        except ApprovalProblem as problem:
            messages.error(request, str(problem))
        return redirect("session-plan", slug)
    shown = session_page(deployment)
    approver = can(request.user, "approve", deployment.team_id)
    context = {
        "section": "fleet",
        "now": clock.now(),
        "deployment": deployment,
        "shown": shown,
        "may_approve": approver and shown.lines and shown.approval is None,
        "why_not": why_not(deployment, request.user) if approver else "",
        "may_withdraw": can(request.user, "edit_fleet", deployment.team_id),
    }
    return render(request, "deployment/session.html", context)
