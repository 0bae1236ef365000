"""Writes of accounts: users, teams, roles. Every act is checked (PermissionDenied) and recorded.
Tokens are in `accounts.tokens`."""

from __future__ import annotations

import secrets

from django.contrib.auth.models import Group
from django.db import transaction
from django.utils.text import slugify

from kvaudit.accounts.access import forget_access, require
from kvaudit.accounts.actors import Actor
from kvaudit.accounts.models import Membership, Team, User
from kvaudit.accounts.records import record
from kvaudit.accounts.roles import Role


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
    *, username: str, actor: Actor, email: str = "", fleet_role: Role | None = None
) -> tuple[User, str]:
    """A user with a one-time password, returned once. ``fleet_role`` counts for every team."""
    require(actor, "manage_accounts")
    one_time = secrets.token_urlsafe(15)
    user = User(username=username, email=email, must_change_password=True)
    user.set_password(one_time)
    user.full_clean()
    user.save()
    if fleet_role is not None:
        user.groups.add(role_group(fleet_role))
    record(actor=actor, kind="user.created", subject=f"user:{username}")
    return user, one_time


@transaction.atomic
def change_password(*, user: User, password: str, actor: Actor) -> None:
    """Set a password (already validated by the form) and end the one-time state."""
    if actor != user:
        require(actor, "manage_accounts")
    user.set_password(password)
    user.must_change_password = False
    user.save(update_fields=["password", "must_change_password"])
    record(actor=actor, kind="user.password_changed", subject=f"user:{user.get_username()}")


@transaction.atomic
def deactivate_user(*, user: User, actor: Actor) -> None:
    """No more login; the user's tokens stop working with it."""
    require(actor, "manage_accounts")
    user.is_active = False
    user.save(update_fields=["is_active"])
    forget_access(user)
    record(actor=actor, kind="user.deactivated", subject=f"user:{user.get_username()}")


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
def grant_role(*, user: User, team: Team | None, role: Role, actor: Actor) -> None:
    """Give a role in one team (replacing the one held there) or, without a team, in all of them."""
    require(actor, "manage_accounts", team)
    if team is None:
        user.groups.remove(*Group.objects.filter(name__in=[each.value for each in Role]))
        user.groups.add(role_group(role))
    else:
        Membership.objects.update_or_create(user=user, team=team, defaults={"role": role_group(role)})
    forget_access(user)
    where = team.slug if team else "every team"
    record(
        actor=actor, kind="role.granted", subject=f"user:{user.get_username()} {role.value} in {where}"[:300]
    )


@transaction.atomic
def revoke_role(*, user: User, team: Team | None, actor: Actor) -> None:
    """Take the role in one team or, without a team, the fleet-wide one."""
    require(actor, "manage_accounts", team)
    if team is None:
        user.groups.remove(*Group.objects.filter(name__in=[each.value for each in Role]))
    else:
        Membership.objects.filter(user=user, team=team).delete()
    forget_access(user)
    where = team.slug if team else "every team"
    record(actor=actor, kind="role.revoked", subject=f"user:{user.get_username()} in {where}"[:300])


def set_zone(*, user: User, zone: str) -> None:
    """The time zone in which pages show times; a taste, so it is not recorded."""
    user.zone = zone
    user.save(update_fields=["zone"])
