"""Writes of accounts: users, teams, roles. Every act is checked (PermissionDenied) and recorded.
Tokens are in `accounts.tokens`."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import Q
from django.utils.text import slugify

from kvaudit.server.accounts import sessions
from kvaudit.server.accounts.access import access_of, forget_access, require
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.accounts.models import Membership, Session, Team, User
from kvaudit.server.accounts.records import record
from kvaudit.server.accounts.roles import Role


class AccountProblem(ValueError):
    """An act that accounts refuse although the role allows it; the message is a sentence."""


def role_group(role: Role) -> Group:
    """The group of a role; made by a migration, made again when somebody deleted it."""
    return Group.objects.get_or_create(name=role.value)[0]


@transaction.atomic
def ensure_admin(*, username: str, actor: Actor, password: str = "") -> tuple[User, str]:
    """The first administrator: (user, password, shown once). An existing user keeps the password and
    "" is returned; without ``password`` one is drawn. It is printed on the machine's own terminal and
    nobody else has held it, so it may be kept (docs/decisions/0005-the-printed-password.md)."""
    user = User.objects.filter(username=username).first()
    if user is not None:
        return user, ""
    drawn = password or secrets.token_urlsafe(15)
    user = User(username=username, is_superuser=True, is_staff=False, must_change_password=False)
    user.set_password(drawn)
    user.save()
    user.groups.add(role_group(Role.ADMIN))
    record(actor=actor, kind="user.created", subject=f"user:{username}")
    return user, drawn


@transaction.atomic
def create_user(
    *,
    username: str,
    actor: Actor,
    email: str = "",
    fleet_role: Role | None = None,
    team_role: tuple[Team, Role] | None = None,
) -> tuple[User, str]:
    """A user with a one-time password, returned once. ``fleet_role`` counts for every team, ``team_role``
    for one. Raises ValidationError for a name or address that cannot be, or a name that is taken."""
    require(actor, "manage_accounts")
    one_time = secrets.token_urlsafe(15)
    user = User(username=username, email=email, must_change_password=True)
    user.set_password(one_time)
    user.full_clean()
    user.save()
    if fleet_role is not None:
        user.groups.add(role_group(fleet_role))
    record(actor=actor, kind="user.created", subject=f"user:{username}")
    if team_role is not None:
        grant_role(user=user, team=team_role[0], role=team_role[1], actor=actor)
    return user, one_time


@dataclass(frozen=True, slots=True)
class Ended:
    """What a new password put an end to."""

    sessions: int
    tokens: int

    def __str__(self) -> str:
        sessions = f"{self.sessions} session{'' if self.sessions == 1 else 's'}"
        tokens = f"{self.tokens} API token{'' if self.tokens == 1 else 's'}"
        return f"{sessions} ended, {tokens} revoked"


@transaction.atomic
def change_password(*, user: User, password: str, actor: Actor, but: Session | None = None) -> Ended:
    """Set a password (already validated by the form) and end the one-time state. Whoever held the old one keeps
    nothing: sessions end, except ``but``, and API tokens are revoked."""
    if actor != user:
        require(actor, "manage_accounts")
    user.set_password(password)
    user.must_change_password = False
    user.save(update_fields=["password", "must_change_password"])
    ended = _end_all(user, but)
    _recorded(user, "user.password_changed", ended, actor)
    return ended


@transaction.atomic
def reset_password(*, user: User, actor: Actor) -> str:
    """A new one-time password, returned once; every session of the user ends and their tokens are revoked. Raises
    `AccountProblem` for one's own, which asks for no other to know it."""
    require(actor, "manage_accounts")
    if actor == user:
        raise AccountProblem("Your own password is changed under Your account; nobody else need know it.")
    one_time = secrets.token_urlsafe(15)
    user.set_password(one_time)
    user.must_change_password = True
    user.save(update_fields=["password", "must_change_password"])
    ended = _end_all(user, None)
    _recorded(user, "user.password_reset", ended, actor)
    return one_time


def _end_all(user: User, but: Session | None) -> Ended:
    return Ended(sessions.end_quietly(user, but), sessions.revoke_tokens(user))


def _recorded(user: User, kind: str, ended: Ended, actor: Actor) -> None:
    subject = f"user:{user.get_username()}"
    record(
        actor=actor, kind=kind, subject=f"{subject} {ended}" if ended.sessions or ended.tokens else subject
    )


@transaction.atomic
def deactivate_user(*, user: User, actor: Actor) -> None:
    """No more login; the user's tokens stop working with it. Raises `AccountProblem` for oneself and for
    the last administrator."""
    require(actor, "manage_accounts")
    if actor == user:
        raise AccountProblem("You cannot deactivate yourself: ask another administrator.")
    with _an_administrator_stays(actor):
        User.objects.filter(pk=user.pk).update(is_active=False)
    user.is_active = False
    sessions.end_quietly(user)
    forget_access(user)
    record(actor=actor, kind="user.deactivated", subject=f"user:{user.get_username()}")


@transaction.atomic
def reactivate_user(*, user: User, actor: Actor) -> None:
    """Login and tokens work again, with the roles that were held."""
    require(actor, "manage_accounts")
    user.is_active = True
    user.save(update_fields=["is_active"])
    forget_access(user)
    record(actor=actor, kind="user.reactivated", subject=f"user:{user.get_username()}")


def team_slug(name: str) -> str:
    """The slug of a team as people write it ("Core Serving"). Raises ValueError with a sentence."""
    slug = slugify(name)[:100]
    if not slug:
        raise ValueError(f"A team needs a name with letters or digits, not {name[:100]!r}.")
    return slug


@transaction.atomic
def ensure_team(*, slug: str, actor: Actor, name: str = "") -> Team:
    """The team of that slug, made when it is new. Raises ValueError as `team_slug`."""
    require(actor, "edit_fleet")
    team, new = Team.objects.get_or_create(slug=team_slug(slug), defaults={"name": name or slug})
    if new:
        record(actor=actor, kind="team.created", subject=f"team:{team.slug}")
    return team


@transaction.atomic
def rename_team(*, team: Team, name: str, actor: Actor) -> None:
    """Another name for people to read; the slug, which addresses, plans and records use, stays. Raises
    `AccountProblem` for a name without a letter or digit."""
    require(actor, "manage_accounts", team)
    if not any(character.isalnum() for character in name):
        raise AccountProblem("A team needs a name with letters or digits.")
    team.name = name.strip()
    team.save(update_fields=["name"])
    record(actor=actor, kind="team.renamed", subject=f"team:{team.slug}")


@transaction.atomic
def grant_role(*, user: User, team: Team | None, role: Role, actor: Actor) -> None:
    """Give a role in one team (replacing the one held there) or, without a team, in all of them. Raises
    `AccountProblem` for a role above the actor's own and for the last administrator's."""
    require(actor, "manage_accounts", team)
    _not_above(actor, role, team)
    if team is None:
        with _an_administrator_stays(actor):
            _take_fleet_role(user)
            user.groups.add(role_group(role))
        user.is_superuser = False
    else:
        Membership.objects.update_or_create(user=user, team=team, defaults={"role": role_group(role)})
    forget_access(user)
    where = team.slug if team else "every team"
    record(
        actor=actor, kind="role.granted", subject=f"user:{user.get_username()} {role.value} in {where}"[:300]
    )


@transaction.atomic
def revoke_role(*, user: User, team: Team | None, actor: Actor) -> None:
    """Take the role in one team or, without a team, the fleet-wide one. Raises `AccountProblem` for the
    last administrator's."""
    require(actor, "manage_accounts", team)
    if team is None:
        with _an_administrator_stays(actor):
            _take_fleet_role(user)
        user.is_superuser = False
    else:
        Membership.objects.filter(user=user, team=team).delete()
    forget_access(user)
    where = team.slug if team else "every team"
    record(actor=actor, kind="role.revoked", subject=f"user:{user.get_username()} in {where}"[:300])


def set_zone(*, user: User, zone: str) -> None:
    """The time zone in which pages show times; a taste, so it is not recorded."""
    user.zone = zone
    user.save(update_fields=["zone"])


def _take_fleet_role(user: User) -> None:
    user.groups.remove(*Group.objects.filter(name__in=[role.value for role in Role]))
    # The first administrator is one, which no group takes away.
    User.objects.filter(pk=user.pk).update(is_superuser=False)


def _not_above(actor: Actor, role: Role, team: Team | None) -> None:
    """Whatever role manages accounts, nobody hands out more than they hold."""
    if not isinstance(actor, User):
        return
    access = access_of(actor)
    own = access.fleet_role if team is None else access.role_in(team.pk)
    if own is None or not own.includes(role):
        raise AccountProblem(f"You cannot make anybody {role.value}: that is above your own role.")


@contextmanager
def _an_administrator_stays(actor: Actor) -> Iterator[None]:
    """What is done inside must leave somebody who can log in and manage accounts everywhere. Two such acts
    wait for each other, or each would count on whom the other removes."""
    administrators = Group.objects.select_for_update(no_key=True).get(pk=role_group(Role.ADMIN).pk)
    yield
    # The machine's own commands may: whoever runs them can make another administrator.
    if isinstance(actor, str):
        return
    some = Q(is_superuser=True) | Q(groups=administrators)
    if not User.objects.filter(some, is_active=True).exists():
        raise AccountProblem("That would leave no administrator of every team: make somebody else one first.")
