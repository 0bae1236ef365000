"""Waivers: what waits for an approver, what is in force, what waives nothing; and one of them."""

from __future__ import annotations

from django.contrib import messages
from django.db.models import Q
from django.http import HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, redirect, render

from kvaudit.server import clock
from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import User
from kvaudit.server.checklists import services, time_limits
from kvaudit.server.checklists.expiry_warnings import idle_waivers
from kvaudit.server.checklists.matrix import Matrix
from kvaudit.server.checklists.models import Assessed, Waiver
from kvaudit.server.checklists.scope import Scope, items_of
from kvaudit.server.web.compliance import page as compliance
from kvaudit.server.web.compliance.claim_forms import NoteForm
from kvaudit.server.web.kit.forms import render_form, sent
from kvaudit.server.web.kit.page import SignedIn, page

MOST_PAST = 50
_JOINED = ("deployment__team", "team", "requester", "decided_by", "ended_by")
_LISTED = ("deployment", "team", "requester", "decided_by")
_SHOWN = (
    "item", "reason", "requested_at", "expires_at", "decision", "decided_at", "valid_from", "valid_to",
    "deployment__slug", "team__slug", "requester__username", "decided_by__username",
)  # fmt: skip


@page()
def waivers(request: SignedIn) -> HttpResponse:
    now = clock.now()
    seen = Waiver.objects.visible_to(request.user).select_related(*_LISTED).only(*_SHOWN)
    held = list(seen.in_force(now).order_by("expires_at", "pk"))
    pending = list(seen.pending(now).order_by("requested_at", "pk"))
    past = seen.exclude(pk__in=[each.pk for each in (*held, *pending)]).order_by("-requested_at", "-pk")
    context = {
        "section": "compliance",
        "now": now,
        "pending": pending,
        "held": held,
        "idle": idle_waivers(held, _concerned(request.user, held)) if held else [],
        "past": [each for each in past[:MOST_PAST] if each.state(now) not in ("pending", "in force")],
        "endings": [
            ending for ending in compliance.ending(request.user, now) if ending.what == "attestation"
        ],
        "soon": now + time_limits.warning(),
        "longest": time_limits.longest_waiver().days,
    }
    return render(request, "compliance/waivers.html", context)


def _concerned(user: User, held: list[Waiver]) -> Matrix:
    """How every deployment stands that a waiver is for."""
    seen = Assessed.objects.visible_to(user).existing()
    return seen.filter(
        Q(pk__in={each.deployment_id for each in held}) | Q(team__in={each.team_id for each in held})
    ).standings()


@page("GET", "POST")
def waiver(request: SignedIn, pk: int) -> HttpResponse:
    found = _waiver_or_404(request.user, pk)
    scope = Scope.of(found.deployment, found.team)
    form = NoteForm(sent(request))
    if request.method == "POST":
        act = request.POST.get("act")
        if act not in ("approve", "refuse", "end"):
            return HttpResponseBadRequest("There is no such act.")
        if form.is_valid():
            note = form.cleaned_data["note"]
            try:
                if act == "approve":
                    services.approve_waiver(waiver=found, actor=request.user, note=note)
                    said = "The waiver is in force from now on."
                elif act == "refuse":
                    services.refuse_waiver(waiver=found, actor=request.user, note=note)
                    said = "The request is refused; the item stands as it does."
                else:
                    services.end_waiver(waiver=found, actor=request.user, reason=note)
                    said = "It waives nothing any more; the item stands as its checks say."
            except services.ClaimProblem as problem:
                form.add_error("note", str(problem))
            else:
                messages.success(request, said)
                return redirect("waiver", pk)
    now = clock.now()
    state = found.state(now)
    mine = found.requester_id == request.user.pk
    context = {
        "section": "compliance",
        "now": now,
        "waiver": found,
        "scope": scope,
        "item": next((item for item in items_of(scope.team) if item.key == found.item), None),
        "state": state,
        "form": form,
        "mine": mine,
        "may_decide": state == "pending" and not mine and can(request.user, "approve", scope.team),
        "may_end": state in ("pending", "in force") and can(request.user, "request_waivers", scope.team),
    }
    return render_form(request, "compliance/waiver.html", context)


def _waiver_or_404(user: User, pk: int) -> Waiver:
    return get_object_or_404(Waiver.objects.visible_to(user).select_related(*_JOINED), pk=pk)
