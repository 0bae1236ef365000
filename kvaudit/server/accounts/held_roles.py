"""Roles that users hold: those of their memberships, and the fleet-wide one."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Prefetch, QuerySet

from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import Membership, Team, User
from kvaudit.server.accounts.roles import Role


@dataclass(frozen=True, slots=True)
class HeldRole:
    """A role that somebody holds; without a team in every one. ``may_take``: the reader may revoke it."""

    team: Team | None
    role: str
    may_take: bool = False


def with_roles(users: QuerySet[User], reader: User) -> QuerySet[User]:
    """Roles joined; whoever manages some teams learns nothing of the others."""
    teams = Team.objects.where_can(reader, "manage_accounts")
    memberships = Membership.objects.filter(team__in=teams).select_related("team", "role")
    return users.prefetch_related("groups", Prefetch("memberships", memberships.order_by("team__slug")))


def roles_of(user: User, reader: User) -> list[HeldRole]:
    """The fleet-wide role first. ``user`` comes from `with_roles`."""
    everywhere = can(reader, "manage_accounts")
    names = [Role.ADMIN.value] if user.is_superuser else [group.name for group in user.groups.all()]
    fleet = max((Role(name) for name in names if name in set(Role)), key=lambda role: role.rank, default=None)
    held = [HeldRole(None, fleet.value, everywhere)] if fleet else []
    return held + [
        HeldRole(membership.team, membership.role.name, True) for membership in user.memberships.all()
    ]


def own_roles(user: User) -> list[HeldRole]:
    """What somebody may see of themselves: all of it."""
    found = User.objects.prefetch_related(
        "groups", Prefetch("memberships", Membership.objects.select_related("team", "role"))
    )
    return roles_of(found.get(pk=user.pk), user)
