"""Users with their roles, and teams with who answers for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from django.db.models import Count, Prefetch, Q, QuerySet
from django.http import QueryDict

from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import Membership, Team, User
from kvaudit.server.accounts.querysets import managed_users
from kvaudit.server.accounts.roles import Role
from kvaudit.server.ledger.models import Entry
from kvaudit.server.ledger.searching import newest_sequence
from kvaudit.server.web.kit import untrusted
from kvaudit.server.web.kit.listing import Cut, cut

ANSWERING = (Role.APPROVER.value, Role.ADMIN.value)
"""The roles of those who decide for a team."""


@dataclass(frozen=True, slots=True)
class Held:
    """A role that somebody holds; without a team in every one. ``may_take``: the reader may revoke it."""

    team: Team | None
    role: str
    may_take: bool = False


@dataclass(frozen=True, slots=True)
class Person:
    user: User
    held: Sequence[Held]

    @property
    def everywhere(self) -> str:
        """The fleet-wide role, or ""."""
        return next((each.role for each in self.held if each.team is None), "")


@dataclass(frozen=True, slots=True)
class Filters:
    """What the list is narrowed to; anything else narrows nothing."""

    q: str = ""
    team: str = ""
    state: str = ""
    after: str = ""
    before: str = ""

    @classmethod
    def from_query(cls, query: QueryDict) -> Filters:
        state = query.get("state", "")
        return cls(
            q=untrusted.query_text(query.get("q")),
            team=untrusted.query_text(query.get("team")),
            state=state if state in ("active", "inactive") else "",
            after=untrusted.query_text(query.get("after")),
            before=untrusted.query_text(query.get("before")),
        )

    @property
    def active(self) -> bool:
        return bool(self.q or self.team or self.state)


def listed(reader: User, filters: Filters) -> Cut:
    """Users whose roles the reader may give, by name: four queries, however many there are."""
    users = managed_users(reader)
    if filters.q:
        users = users.filter(Q(username__icontains=filters.q) | Q(email__icontains=filters.q))
    if filters.team:
        users = users.filter(pk__in=Membership.objects.filter(team__slug=filters.team).values("user"))
    if filters.state:
        users = users.filter(is_active=filters.state == "active")
    shown = cut(with_roles(users, reader), "username", after=filters.after, before=filters.before)
    return replace(shown, rows=[person_of(user, reader) for user in shown.rows])


def with_roles(users: QuerySet[User], reader: User) -> QuerySet[User]:
    """Roles joined; whoever manages some teams learns nothing of the others."""
    teams = Team.objects.where_can(reader, "manage_accounts")
    memberships = Membership.objects.filter(team__in=teams).select_related("team", "role")
    return users.prefetch_related("groups", Prefetch("memberships", memberships.order_by("team__slug")))


def person_of(user: User, reader: User) -> Person:
    """``user`` comes from `with_roles`."""
    everywhere = can(reader, "manage_accounts")
    names = [Role.ADMIN.value] if user.is_superuser else [group.name for group in user.groups.all()]
    fleet = max((Role(name) for name in names if name in set(Role)), key=lambda role: role.rank, default=None)
    held = [Held(None, fleet.value, everywhere)] if fleet else []
    held += [Held(each.team, each.role.name, True) for each in user.memberships.all()]
    return Person(user, held)


def own_roles(user: User) -> list[Held]:
    """What somebody may see of themselves: all of it."""
    found = User.objects.prefetch_related(
        "groups", Prefetch("memberships", Membership.objects.select_related("team", "role"))
    )
    return list(person_of(found.get(pk=user.pk), user).held)


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
        answering=[(each.user.get_username(), each.role.name) for each in deciding],
        members=found["people"],
        deployments=found["serving"],
        unowned=found["unowned"],
    )


LOOKED_AT, MOST_LOGINS = 20_000, 10


def logins_of(user: User) -> Sequence[Entry]:
    """The newest logins of the user, and failures under the name, among the newest entries of the ledger."""
    recent = Entry.objects.filter(sequence__gt=newest_sequence() - LOOKED_AT)
    theirs = recent.filter(
        kind__in=("session.began", "login.failed"), subject__startswith=f"user:{user.get_username()} "
    )
    return list(theirs.order_by("-sequence")[:MOST_LOGINS])
