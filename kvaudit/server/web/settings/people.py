"""Users with their roles, and teams with who answers for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from django.db.models import Count, Prefetch, Q, QuerySet

from kvaudit.server.accounts.held_roles import HeldRole, roles_of, with_roles
from kvaudit.server.accounts.models import Membership, Team, User, managed_users
from kvaudit.server.accounts.roles import Role
from kvaudit.server.web.kit import listing
from kvaudit.server.web.kit.listing import Page, choice, keyset_page, position, text

ANSWERING = (Role.APPROVER.value, Role.ADMIN.value)
"""The roles of those who decide for a team."""


@dataclass(frozen=True, slots=True)
class Person:
    user: User
    held: Sequence[HeldRole]

    @property
    def everywhere(self) -> str:
        """The fleet-wide role, or ""."""
        return next((grant.role for grant in self.held if grant.team is None), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters(listing.Filters):
    q: str = text()
    team: str = text()
    state: str = choice(("active", "inactive"))
    after: str = position()
    before: str = position()


def listed(reader: User, filters: Filters) -> Page:
    """Users whose roles the reader may give, by name: four queries, however many there are."""
    users = managed_users(reader)
    if filters.q:
        users = users.filter(Q(username__icontains=filters.q) | Q(email__icontains=filters.q))
    if filters.team:
        users = users.filter(pk__in=Membership.objects.filter(team__slug=filters.team).values("user"))
    if filters.state:
        users = users.filter(is_active=filters.state == "active")
    shown = keyset_page(with_roles(users, reader), "username", filters)
    return replace(shown, rows=[Person(user, roles_of(user, reader)) for user in shown.rows])


@dataclass(frozen=True, slots=True)
class TeamRow:
    """``answering``: (user name, role) of its approvers and administrators."""

    team: Team
    answering: Sequence[tuple[str, str]]
    members: int
    deployments: int
    unowned: int  # deployments for which nobody is named


def team_rows(reader: User) -> list[TeamRow]:
    """Every team that the reader sees, by slug; two queries."""
    return [row_of(team) for team in with_counts(Team.objects.visible_to(reader)).order_by("slug")]


def with_counts(teams: QuerySet[Team]) -> QuerySet[Team]:
    serving = Q(deployments__retired_at=None)
    deciding = Membership.objects.filter(role__name__in=ANSWERING, user__is_active=True)
    return teams.annotate(
        people=Count("memberships", filter=Q(memberships__user__is_active=True), distinct=True),
        serving=Count("deployments", filter=serving, distinct=True),
        unowned=Count("deployments", filter=serving & Q(deployments__owner=""), distinct=True),
    ).prefetch_related(
        Prefetch(
            "memberships", deciding.select_related("user", "role").order_by("user__username"), "deciding"
        )
    )


def row_of(team: Team) -> TeamRow:
    """``team`` comes from `with_counts`."""
    found = vars(team)
    deciding: Iterable[Membership] = found["deciding"]
    return TeamRow(
        team=team,
        answering=[(membership.user.get_username(), membership.role.name) for membership in deciding],
        members=found["people"],
        deployments=found["serving"],
        unowned=found["unowned"],
    )
