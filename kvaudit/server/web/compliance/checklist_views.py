"""The checklist: the shipped items with the standard they are cited for, and teams' own items."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render

from kvaudit.server import clock
from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.checklists import services
from kvaudit.server.checklists.items import shipped
from kvaudit.server.checklists.models import OwnItem
from kvaudit.server.checklists.own_items import spec_of
from kvaudit.server.web.compliance.claim_forms import ItemForm
from kvaudit.server.web.kit.forms import render_form, sent
from kvaudit.server.web.kit.page import SignedIn, page, require

NOT_YOURS = "A team's own items are edited by its operators."


@page()
def checklist(request: SignedIn) -> HttpResponse:
    own = OwnItem.objects.visible_to(request.user).current().select_related("team", "created_by")
    teams = [
        team for team in Team.objects.visible_to(request.user) if can(request.user, "edit_checklists", team)
    ]
    context = {
        "section": "compliance",
        "now": clock.now(),
        "checklist": shipped(),
        "own": [(row, row.as_item()) for row in own.order_by("team__slug", "key")],
        "teams": teams,
    }
    return render(request, "compliance/checklist.html", context)


@page("GET", "POST")
def create(request: SignedIn, slug: str) -> HttpResponse:
    team = get_object_or_404(Team.objects.visible_to(request.user), slug=slug)
    require(request.user, "edit_checklists", team, NOT_YOURS)
    form = ItemForm(sent(request))
    if request.method == "POST" and form.is_valid():
        try:
            made = services.create_item(team=team, spec=form.spec(), actor=request.user)
        except services.ItemProblem as problem:
            form.add_error(None, str(problem))
        else:
            messages.success(request, f"Deployments of {team.slug} are held to {made.key} from now on.")
            return redirect("checklist")
    return render_form(
        request, "compliance/item_form.html", {"section": "compliance", "form": form, "team": team}
    )


@page("GET", "POST")
def change(request: SignedIn, series: UUID) -> HttpResponse:
    found = _editable(request.user, series)
    said = spec_of(found)
    initial = {name: getattr(said, name) for name in type(said).__dataclass_fields__}
    form = ItemForm(sent(request), initial=initial, fixed_key=found.key)
    if request.method == "POST" and form.is_valid():
        try:
            if request.POST.get("version", str(found.pk)) != str(found.pk):
                raise services.ItemProblem(
                    f"Somebody changed item {found.key} meanwhile. Yours is below: save it again to replace theirs."
                )
            services.change_item(item=found, spec=form.spec(), actor=request.user)
        except services.ItemProblem as problem:
            form.add_error(None, str(problem))
        else:
            messages.success(
                request, f"Item {found.key} was changed; past moments keep the rule of their time."
            )
            return redirect("checklist")
    context = {"section": "compliance", "form": form, "team": found.team, "item": found}
    return render_form(request, "compliance/item_form.html", context)


@page("POST")
def retire(request: SignedIn, series: UUID) -> HttpResponse:
    found = _editable(request.user, series)
    services.retire_item(item=found, actor=request.user)
    messages.success(request, f"Item {found.key} was retired. What was shown by it stays on record.")
    return redirect("checklist")


def _editable(user: User, series: UUID) -> OwnItem:
    """The open version, for whoever may edit it; 404 for whoever may not even see it."""
    newest = (
        OwnItem.objects.visible_to(user)
        .filter(series=series)
        .select_related("team")
        .order_by("-version")
        .first()
    )
    if newest is None:
        raise Http404
    require(user, "edit_checklists", newest.team, NOT_YOURS)
    if newest.valid_to is not None:
        raise PermissionDenied("This item was retired; make a new one.")
    return newest
