"""Users and their roles: the list, one of them, a new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, redirect, render

from kvaudit.server import clock
from kvaudit.server.accounts import services, sessions
from kvaudit.server.accounts.access import can, can_somewhere
from kvaudit.server.accounts.held_roles import roles_of, with_roles
from kvaudit.server.accounts.models import ApiToken, Team, User, managed_users
from kvaudit.server.accounts.roles import ALLOWS, Role
from kvaudit.server.web.kit import untrusted
from kvaudit.server.web.kit.forms import render_form, sent
from kvaudit.server.web.kit.page import SignedIn, page, require
from kvaudit.server.web.settings import people
from kvaudit.server.web.settings.forms import EVERYWHERE, GrantForm, MemberForm, UserForm

NOT_YOURS = "Users and their roles are managed by administrators, of one team or of all."
NOT_EVERYBODYS = "Users are made, deactivated and given new passwords by administrators of every team."


@page("GET", "POST")
def users(request: SignedIn) -> HttpResponse:
    _administrators_only(request.user)
    form = MemberForm(sent(request), giver=request.user)
    said = ""
    if request.method == "POST" and form.is_valid():
        said = _granted(request, form, form.cleaned_data["username"])
    if said:
        messages.success(request, said)
        return redirect("settings-users")
    filters = people.Filters.from_query(request.GET)
    context = {
        "section": "settings",
        "now": clock.now(),
        "page": people.listed(request.user, filters),
        "filters": filters,
        "teams": Team.objects.where_can(request.user, "manage_accounts").values_list("slug", flat=True),
        "form": form,
        "may_create": can(request.user, "manage_accounts"),
        "allows": ALLOWS.items(),
    }
    return render_form(request, "settings/users.html", context)


@page("GET", "POST")
def create(request: SignedIn) -> HttpResponse:
    require(request.user, "manage_accounts", None, NOT_EVERYBODYS)
    form = UserForm(sent(request), giver=request.user)
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        (team, chosen), role = said["where"], Role(said["role"])
        try:
            user, password = services.create_user(
                username=said["username"],
                email=said["email"],
                actor=request.user,
                fleet_role=role if chosen and team is None else None,
                team_role=(team, role) if team else None,
            )
        except ValidationError as problem:
            for field, errors in problem.message_dict.items():
                form.add_error(field if field in form.fields else None, errors)
        else:
            return _one_time(request, user, password)
    return render_form(request, "settings/user_form.html", {"section": "settings", "form": form})


@page("GET", "POST")
def user(request: SignedIn, pk: int) -> HttpResponse:
    _administrators_only(request.user)
    found = get_object_or_404(with_roles(managed_users(request.user), request.user), pk=pk)
    name = request.POST.get("act", "")
    form = GrantForm(sent(request, "grant"), giver=request.user)
    if request.method == "POST":
        if name == "grant":
            said = _granted(request, form, found) if form.is_valid() else ""
        elif name in ACTS:
            try:
                said = ACTS[name](request, found)
            except services.AccountProblem as problem:
                messages.error(request, str(problem))
                return redirect("settings-user", pk)
        elif name == "reset":
            return _reset(request, found)
        else:
            return HttpResponseBadRequest("There is no such act.")
        if said:
            messages.success(request, said)
            # Whoever gave their own role away may see less of the others now.
            stays = managed_users(User.objects.get(pk=request.user.pk)).filter(pk=pk).exists()
            return redirect("settings-user", pk) if stays else redirect("settings")
    context = {
        "section": "settings",
        "now": clock.now(),
        "person": people.Person(found, roles_of(found, request.user)),
        "form": form,
        "may_manage": can(request.user, "manage_accounts"),
        "tokens": ApiToken.objects.usable(clock.now()).filter(owner=found).count(),
        "everywhere": EVERYWHERE,
        "sessions": sessions.sessions_of(found) if can(request.user, "manage_accounts") else [],
    }
    return render_form(request, "settings/user.html", context)


def _administrators_only(reader: User) -> None:
    if not can_somewhere(reader, "manage_accounts"):
        raise PermissionDenied(NOT_YOURS)


def _granted(request: SignedIn, form: GrantForm, user: User) -> str:
    """The sentence of what was done; "" when the form has the problem."""
    team, role = form.cleaned_data["where"][0], Role(form.cleaned_data["role"])
    try:
        services.grant_role(user=user, team=team, role=role, actor=request.user)
    except services.AccountProblem as problem:
        form.add_error("role", str(problem))
        return ""
    return f"{user.get_username()} is {role.value} in {team.slug if team else 'every team'} now."


def _revoke(request: SignedIn, user: User) -> str:
    where = untrusted.query_text(request.POST.get("team"))
    team = None
    if where != EVERYWHERE:
        team = Team.objects.where_can(request.user, "manage_accounts").filter(slug=where).first()
        if team is None:
            raise Http404
    services.revoke_role(user=user, team=team, actor=request.user)
    return f"{user.get_username()} holds no role in {team.slug if team else 'every team'} any more."


def _deactivate(request: SignedIn, user: User) -> str:
    require(request.user, "manage_accounts", None, NOT_EVERYBODYS)
    services.deactivate_user(user=user, actor=request.user)
    return f"{user.get_username()} can no longer log in, and their tokens no longer work."


def _reactivate(request: SignedIn, user: User) -> str:
    require(request.user, "manage_accounts", None, NOT_EVERYBODYS)
    services.reactivate_user(user=user, actor=request.user)
    return f"{user.get_username()} can log in again."


def _end_sessions(request: SignedIn, user: User) -> str:
    require(request.user, "manage_accounts", None, NOT_EVERYBODYS)
    count = sessions.end_sessions(user=user, actor=request.user)
    return f"{user.get_username()} is logged out everywhere ({count} session{'' if count == 1 else 's'})."


ACTS: Mapping[str, Callable[[SignedIn, User], str]] = {
    "revoke": _revoke,
    "deactivate": _deactivate,
    "reactivate": _reactivate,
    "end-sessions": _end_sessions,
}


def _reset(request: SignedIn, user: User) -> HttpResponse:
    require(request.user, "manage_accounts", None, NOT_EVERYBODYS)
    try:
        ended = services.Ended(
            len(sessions.sessions_of(user)), ApiToken.objects.filter(owner=user, revoked_at=None).count()
        )
        password = services.reset_password(user=user, actor=request.user)
    except services.AccountProblem as problem:
        messages.error(request, str(problem))
        return redirect("settings-user", user.pk)
    return _one_time(request, user, password, str(ended))


def _one_time(request: SignedIn, user: User, password: str, ended: str = "") -> HttpResponse:
    """In the answer itself: a message would keep it in a cookie, a session in the database."""
    context = {"section": "settings", "shown": user, "password": password, "ended": ended}
    return render(request, "settings/one_time.html", context)
