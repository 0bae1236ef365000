"""One item of one deployment with its evidence; attesting it, asking for a waiver of it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from kvaudit.server import clock
from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.checklists import services
from kvaudit.server.checklists.items import Item
from kvaudit.server.checklists.scope import Scope, items_of
from kvaudit.server.web.compliance.claim_forms import AttestForm, WaiveForm
from kvaudit.server.web.compliance.item.page import item_page
from kvaudit.server.web.compliance.page import end_of_day, read_day
from kvaudit.server.web.kit.forms import render_form, sent
from kvaudit.server.web.kit.page import SignedIn, deployment_or_404, page, require

NO_ATTEST = "Attestations are made by operators of the deployment's team."
NO_REQUEST = "Waivers are asked for by operators of the deployment's team."


@page()
def item(request: SignedIn, slug: str, key: str) -> HttpResponse:
    deployment = deployment_or_404(request.user, slug)
    day, problem = read_day(request.GET.get("as_of", ""))
    moment = end_of_day(day)
    shown = item_page(deployment, key, moment)
    if shown is None:
        raise Http404
    team = deployment.team_id
    context = {
        "section": "compliance",
        "now": clock.now(),
        "moment": shown.moment,
        "past": moment is not None,
        "problem": problem,
        "shown": shown,
        "deployment": deployment,
        "may_attest": moment is None and shown.attestable and can(request.user, "attest", team),
        "may_waive": moment is None and not shown.cell.leak and can(request.user, "request_waivers", team),
    }
    return render(request, "compliance/item.html", context)


@page("GET", "POST")
def attest(request: SignedIn, slug: str, key: str) -> HttpResponse:
    deployment = deployment_or_404(request.user, slug)
    return _attest(request, Scope(deployment.team, deployment), key)


@page("GET", "POST")
def attest_team(request: SignedIn, slug: str, key: str) -> HttpResponse:
    return _attest(request, Scope(_team_or_404(request.user, slug)), key)


@page("GET", "POST")
def waive(request: SignedIn, slug: str, key: str) -> HttpResponse:
    deployment = deployment_or_404(request.user, slug)
    return _waive(request, Scope(deployment.team, deployment), key)


@page("GET", "POST")
def waive_team(request: SignedIn, slug: str, key: str) -> HttpResponse:
    return _waive(request, Scope(_team_or_404(request.user, slug)), key)


def _attest(request: SignedIn, scope: Scope, key: str) -> HttpResponse:
    found = _item_or_404(scope.team, key)
    require(request.user, "attest", scope.team, NO_ATTEST)
    form = AttestForm(sent(request), request.FILES or None)
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        try:
            made = services.attest(
                item=key,
                statement=said["statement"],
                expires_at=said["until"],
                link=said["link"],
                file=form.evidence(),
                actor=request.user,
                **_target(scope),
            )
        except services.ClaimProblem as problem:
            form.add_error(None, str(problem))
        else:
            messages.success(request, f"Item {key} is attested for {scope}.")
            return redirect("attestation", made.pk)
    return _form(request, scope, found, form, "attest")


def _waive(request: SignedIn, scope: Scope, key: str) -> HttpResponse:
    found = _item_or_404(scope.team, key)
    require(request.user, "request_waivers", scope.team, NO_REQUEST)
    form = WaiveForm(sent(request))
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        try:
            made = services.request_waiver(
                item=key,
                reason=said["reason"],
                expires_at=said["until"],
                actor=request.user,
                **_target(scope),
            )
        except services.ClaimProblem as problem:
            form.add_error(None, str(problem))
        else:
            messages.success(
                request, "The request waits for an approver; until then the item stands as it does."
            )
            return redirect("waiver", made.pk)
    return _form(request, scope, found, form, "waive")


def _form(request: SignedIn, scope: Scope, item: Item, form: Any, act: str) -> HttpResponse:
    context = {
        "section": "compliance",
        "scope": scope,
        "deployment": scope.deployment,
        "team": scope.team,
        "item": item,
        "form": form,
        "act": act,
        "now": clock.now(),
    }
    return render_form(request, "compliance/claim_form.html", context)


def _target(scope: Scope) -> dict[str, Any]:
    return {"deployment": scope.deployment} if scope.deployment else {"team": scope.team}


def _item_or_404(team: Team, key: str) -> Item:
    for each in items_of(team):
        if each.key == key:
            return each
    raise Http404


def _team_or_404(user: User, slug: str) -> Team:
    return get_object_or_404(Team.objects.visible_to(user), slug=slug)
