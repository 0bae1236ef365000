"""Plans: list, one plan, create, change, switch on or off, retire."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render

from kvaudit.server import clock
from kvaudit.server.accounts.access import can, can_somewhere
from kvaudit.server.audits.models import Plan
from kvaudit.server.audits.schedule import plans as planning
from kvaudit.server.audits.schedule.prices import PlanPrice, price_of
from kvaudit.server.fleet.models import Pause
from kvaudit.server.web.kit import untrusted
from kvaudit.server.web.kit.forms import render_form, sent
from kvaudit.server.web.kit.page import SignedIn, page
from kvaudit.server.web.plans.forms import PlanForm, initial_of
from kvaudit.server.web.plans.page import may_edit, plan_page, plan_rows

if TYPE_CHECKING:
    from kvaudit.server.accounts.models import User

NOT_YOURS = "This plan reaches deployments of teams in which you are no operator, so you cannot change it."


@page()
def plans(request: SignedIn) -> HttpResponse:
    context = {
        "section": "plans",
        "now": clock.now(),
        "rows": plan_rows(request.user),
        "may_plan": can_somewhere(request.user, "edit_plans"),
        "pause": Pause.objects.current().filter(deployment=None).first(),
        "may_pause": can(request.user, "pause_probes"),
    }
    return render(request, "plans/plans.html", context)


@page()
def plan(request: SignedIn, series: UUID) -> HttpResponse:
    found = _plan_or_404(request.user, series)
    context = {
        "section": "plans",
        "now": clock.now(),
        "shown": plan_page(found, request.user),
        "plan": found,
        "may_edit": found.valid_to is None and may_edit(request.user, found),
    }
    return render(request, "plans/plan.html", context)


@page("GET", "POST")
def create(request: SignedIn) -> HttpResponse:
    if not can_somewhere(request.user, "edit_plans"):
        raise PermissionDenied("Plans are made by operators.")
    initial = {
        "deployments": untrusted.query_text(request.GET.get("deployment")),
        "zone": "UTC",
    }
    form = PlanForm(sent(request), initial=initial, user=request.user)
    if request.method == "POST" and form.is_valid():
        if (price := _unconfirmed(request, form)) is not None:
            return render(request, "plans/form.html", {"section": "plans", "form": form, "price": price})
        made = planning.create_plan(spec=form.spec(), actor=request.user)
        messages.success(request, f"The plan {made.name} was made.")
        return redirect("plan", made.series)
    return render_form(request, "plans/form.html", {"section": "plans", "form": form})


@page("GET", "POST")
def change(request: SignedIn, series: UUID) -> HttpResponse:
    found = _editable(request.user, series)
    initial = {**initial_of(planning.spec_of(found)), "version": found.pk}
    form = PlanForm(sent(request), initial=initial, user=request.user)
    if request.method == "POST" and form.is_valid():
        if request.POST.get("version") != str(found.pk):
            form.add_error(
                None,
                "Somebody changed this plan meanwhile. Yours is below: send it again to replace theirs.",
            )
        elif (price := _unconfirmed(request, form)) is not None:
            context = {"section": "plans", "form": form, "plan": found, "price": price}
            return render(request, "plans/form.html", context)
        else:
            try:
                planning.change_plan(plan=found, spec=form.spec(), actor=request.user)
            except planning.PlanProblem as problem:
                form.add_error(None, str(problem))
            else:
                messages.success(request, "The plan was changed.")
                return redirect("plan", series)
    return render_form(request, "plans/form.html", {"section": "plans", "form": form, "plan": found})


@page("POST")
def switch(request: SignedIn, series: UUID) -> HttpResponse:
    found = _editable(request.user, series)
    wanted = request.POST.get("enabled") == "yes"
    if wanted != found.enabled:
        spec = replace(planning.spec_of(found), enabled=wanted)
        try:
            planning.change_plan(plan=found, spec=spec, actor=request.user)
        except planning.PlanProblem as problem:
            messages.error(request, str(problem))
        else:
            messages.success(request, f"The plan was switched {'on' if wanted else 'off'}.")
    return redirect("plan", series)


@page("POST")
def retire(request: SignedIn, series: UUID) -> HttpResponse:
    found = _editable(request.user, series)
    planning.retire_plan(plan=found, actor=request.user)
    messages.success(request, f"The plan {found.name} was retired. What it did stays on record.")
    return redirect("plans")


def _unconfirmed(request: SignedIn, form: PlanForm) -> PlanPrice | None:
    """The price of a plan that sends prompts, until it is sent again with what was priced; None where that is done."""
    price = price_of(form.spec())
    return None if price is None or request.POST.get("priced") == price.key else price


def _plan_or_404(user: User, series: UUID) -> Plan:
    """The newest version, when it selects something the user sees (or the user could edit it)."""
    newest = Plan.objects.filter(series=series).select_related("team").order_by("-valid_from").first()
    if newest is None or not (
        Plan.objects.visible_to(user).filter(pk=newest.pk).exists() or may_edit(user, newest)
    ):
        raise Http404
    return newest


def _editable(user: User, series: UUID) -> Plan:
    found = _plan_or_404(user, series)
    if not may_edit(user, found):
        raise PermissionDenied(NOT_YOURS)
    if found.valid_to is not None:
        raise PermissionDenied("This plan was retired; make a new one.")
    return found
