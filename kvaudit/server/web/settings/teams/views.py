"""Teams: who answers for what; a new one, and another name."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect

from kvaudit.server import clock
from kvaudit.server.accounts import services
from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import Membership, Team
from kvaudit.server.web.kit.forms import render_form, sent
from kvaudit.server.web.kit.page import SignedIn, page, require
from kvaudit.server.web.settings import people
from kvaudit.server.web.settings.forms import RenameForm, TeamForm

NOT_YOURS = "Teams are made by operators of every team."
NOT_ITS_OWN = "A team is renamed by its administrators."


@page("GET", "POST")
def teams(request: SignedIn) -> HttpResponse:
    may_create = can(request.user, "edit_fleet")
    form = TeamForm(sent(request))
    if request.method == "POST":
        require(request.user, "edit_fleet", None, NOT_YOURS)
        if form.is_valid():
            said = form.cleaned_data
            team = services.ensure_team(slug=said["slug"], name=said["name"], actor=request.user)
            messages.success(request, f"The team {team.slug} was made; nobody is in it yet.")
            return redirect("settings-team", team.slug)
    context = {
        "section": "settings",
        "now": clock.now(),
        "rows": people.team_rows(request.user),
        "form": form,
        "may_create": may_create,
    }
    return render_form(request, "settings/teams.html", context)


@page("GET", "POST")
def team(request: SignedIn, slug: str) -> HttpResponse:
    found = get_object_or_404(people.with_counts(Team.objects.visible_to(request.user)), slug=slug)
    form = RenameForm(sent(request), initial={"name": found.name})
    if request.method == "POST":
        require(request.user, "manage_accounts", found, NOT_ITS_OWN)
        if form.is_valid():
            try:
                services.rename_team(team=found, name=form.cleaned_data["name"], actor=request.user)
            except services.AccountProblem as problem:
                form.add_error("name", str(problem))
            else:
                messages.success(request, f"Pages call {found.slug} by its new name now; the slug stays.")
                return redirect("settings-team", slug)
        found.refresh_from_db(fields=["name"])
    members = Membership.objects.filter(team=found).select_related("user", "role")
    context = {
        "section": "settings",
        "now": clock.now(),
        "row": people.row_of(found),
        "members": members.order_by("-user__is_active", "user__username"),
        "form": form,
        "may_manage": can(request.user, "manage_accounts", found),
    }
    return render_form(request, "settings/team.html", context)
