"""Active checks: pause and resume them, give and withdraw consent to long prompts. Each act is recorded."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect
from django.urls import reverse

from kvaudit.server.audits.execution import suspension
from kvaudit.server.audits.schedule.defaults import ensure_default_plans
from kvaudit.server.fleet import services
from kvaudit.server.web.kit.forms import alone, sent
from kvaudit.server.web.kit.page import SignedIn, deployment_or_404, page, require
from kvaudit.server.web.plans.forms import PauseForm

NOT_YOURS = "Probes are paused and resumed by operators; consent is given by approvers."

WORDS = {
    "pause": "Pause active checks",
    "resume": "Resume active checks",
    "consent": "Give consent to prompts at the boundary",
    "withdraw": "Withdraw the consent",
}


@page("POST")
def of_deployment(request: SignedIn, slug: str) -> HttpResponse:
    deployment = deployment_or_404(request.user, slug)
    act, form = request.POST.get("act"), PauseForm(sent(request))
    ability = {
        "pause": "pause_probes",
        "resume": "pause_probes",
        "consent": "give_consent",
        "withdraw": "edit_fleet",
    }
    if act not in ability:
        return HttpResponseBadRequest("There is no such act.")
    require(request.user, ability[act], deployment.team, NOT_YOURS)

    def again() -> HttpResponse:
        back = reverse("deployment-settings", args=[slug])
        return alone(request, form, title=WORDS[act], act=(act, WORDS[act]), back=back, section="fleet")

    if not form.is_valid():
        return again()
    reason = form.cleaned_data["reason"]
    if act == "pause":
        services.pause_probes(actor=request.user, deployment=deployment, reason=reason)
        said = "Active checks are paused; one that is on its way stops before its next request."
    elif act == "resume":
        try:
            suspension.resume(actor=request.user, deployment=deployment, reason=reason)
        except ValueError as problem:
            form.fields["reason"].required = True  # and not called optional
            form.add_error("reason", str(problem))
            return again()
        said = "Active checks may run again in their windows."
    elif act == "consent":
        services.give_consent(deployment=deployment, actor=request.user, reason=reason)
        ensure_default_plans(deployment=deployment, actor=request.user)
        said = "Consent to prompts at the boundary is recorded."
    else:
        services.withdraw_consent(deployment=deployment, actor=request.user)
        said = "Consent is withdrawn: Run active checks leaves out rejection, coherence and canary."
    messages.success(request, said)
    return redirect("deployment-settings", slug)


@page("POST")
def of_fleet(request: SignedIn) -> HttpResponse:
    require(
        request.user, "pause_probes", None, "Probes of the whole fleet are paused by fleet-wide operators."
    )
    if request.POST.get("act") == "resume":
        services.resume_probes(actor=request.user)
        messages.success(
            request, "The pause of the whole fleet has ended; pauses of single deployments stay."
        )
    else:
        form = PauseForm(sent(request))
        if not form.is_valid():
            words = "Pause the probes of the whole fleet"
            return alone(
                request, form, title=words, act=("pause", "Pause"), back=reverse("plans"), section="plans"
            )
        reason = form.cleaned_data["reason"]
        services.pause_probes(actor=request.user, reason=reason)
        messages.success(request, "Active checks of the whole fleet are paused, before their next request.")
    return redirect("plans")
