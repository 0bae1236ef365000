"""Reads of checklists. `AssessedQuerySet.standings` is the one place where it is computed how items
stand: pages, API, exports and daily counts all ask there, for now and for any past moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar

from django.db import models
from django.db.models import OuterRef, Q, Subquery
from django.utils import timezone

from kvaudit.audits.narrow import Micros, among, micros
from kvaudit.checklists.items import DISAGGREGATED, UNIFIED, Item, shipped
from kvaudit.checklists.matrix import Cells, Items, Matrix, Rows, Subject
from kvaudit.checklists.standing import Claim, Says, proves_leak, rank_of
from kvaudit.fleet.intervals import IntervalQuerySet
from kvaudit.fleet.querysets import DeploymentQuerySet

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser

    from kvaudit.accounts.models import User
    from kvaudit.audits.querysets import CheckStateQuerySet
    from kvaudit.checklists.models import Attestation, DailyCount, OwnItem, Waiver  # noqa: F401
    from kvaudit.fleet.models import Deployment

_Said = dict[int, dict[str, list[Says]]]
"""Deployment -> check -> its states."""
_Ranks = dict[int, dict[str, int]]
"""Deployment -> check -> the worst of their ranks."""
_Unrefuted = dict[int, dict[str, bool]]
"""Deployment -> check that failed and has learnt nothing since -> whether that fail was a leak."""

_SAYS = (
    "deployment_id", "check_id", "verdict", "warn", "severity", Micros("since"), Micros("expires_at"), "expired_by",
    "run_id", "recalled",
)  # fmt: skip

Scoped = TypeVar("Scoped", bound=models.Model, covariant=True)


class AssessedQuerySet(DeploymentQuerySet):
    def existing(self, moment: datetime | None = None) -> Self:
        """Deployments that were known and not retired at a moment (default: now)."""
        when = timezone.now() if moment is None else moment
        return self.filter(Q(retired_at=None) | Q(retired_at__gt=when), created_at__lte=when)

    def standings(self, *, moment: datetime | None = None) -> Matrix:
        """How every item stands for these deployments, now or at a past moment. Seven queries, eight
        where an item is only for one mode of serving, however many deployments."""
        from kvaudit.accounts.models import Team
        from kvaudit.audits.models import CheckState, Overdue
        from kvaudit.checklists.models import Attestation, OwnItem, Waiver

        when = timezone.now() if moment is None else moment
        found = list(self.values_list("pk", "slug", "team_id", "owner", "contact", Micros("created_at")))
        teams = Team.objects.in_bulk({row[2] for row in found})
        deployments = [Subject._make((*row, teams[row[2]])) for row in found]
        ids = [each.pk for each in deployments]
        own: dict[int, list[Item]] = defaultdict(list)
        for row in OwnItem.objects.at(when).filter(team_id__in=teams).order_by("key", "team_id"):
            own[row.team_id].append(row.as_item())
        common = shipped(when).items
        items: dict[int, Items] = {
            team: {item.key: item for item in (*common, *own.get(team, ()))} for team in teams
        }
        instant = micros(when)
        states = CheckState.objects.as_of(moment).filter(among("deployment_id", ids))
        said, ranks, unrefuted = _said(states, instant)
        attested = _Claims(Attestation.objects.in_force(when).concerning(ids, teams), "author")
        waived = _Claims(Waiver.objects.in_force(when).concerning(ids, teams), "requester", "decided_by")
        late: dict[int, datetime] = {}
        for pk, since in (
            Overdue.objects.at(when).filter(among("deployment_id", ids)).values_list("deployment_id", "since")
        ):
            late[pk] = min(since, late.get(pk, since))
        every = [*common, *(item for several in own.values() for item in several)]
        modes = _modes(ids, moment) if any(item.applies_to for item in every) else {}
        rows = Rows()
        return Matrix(
            when,
            every,
            [
                rows.row(
                    each,
                    Cells(
                        items[each.team_id],
                        said.get(each.pk, {}),
                        instant,
                        each.created_at,
                        attested.about(each),
                        waived.about(each),
                        modes.get(each.pk, ""),
                        unrefuted.get(each.pk, {}),
                    ),
                    ranks.get(each.pk, {}),
                    late.get(each.pk),
                )
                for each in deployments
            ],
        )


def _said(states: CheckStateQuerySet, moment: int) -> tuple[_Said, _Ranks, _Unrefuted]:
    """In one pass over tuples, since a fleet has thousands."""
    found: _Said = defaultdict(dict)
    ranks: _Ranks = defaultdict(dict)
    unrefuted: _Unrefuted = defaultdict(dict)
    several: list[list[Says]] = []
    for says in map(Says._make, states.recalling().order_by().values_list(*_SAYS)):
        deployment, check, rank = says[0], says[1], rank_of(says, moment)
        here, worst = found[deployment], ranks[deployment]
        if check in here:
            here[check].append(says)
            several.append(here[check])
            worst[check] = max(worst[check], rank)
        else:
            here[check] = [says]
            worst[check] = rank
        if says.recalled is not None:
            unrefuted[deployment][check] = proves_leak(check, says.recalled)
    for group in several:  # states of nodes beside the deployment's own: always in one order
        group.sort(key=lambda each: (each.since, each.run_id, each.verdict))
    return found, ranks, unrefuted


class _Claims:
    """Claims in force by scope and item."""

    def __init__(self, rows: models.QuerySet[Any], *people: str) -> None:
        self._deployments: dict[int, dict[str, Claim]] = defaultdict(dict)
        self._teams: dict[int, dict[str, Claim]] = defaultdict(dict)
        names = [f"{person}__username" for person in people]
        scope = ("item", "deployment_id", "team_id")
        for row in rows.values_list("pk", *scope, Micros("valid_from"), Micros("expires_at"), *names):
            claim = Claim(*row)
            if claim.deployment_id is not None:
                self._deployments[claim.deployment_id][claim.item] = claim
            elif claim.team_id is not None:
                self._teams[claim.team_id][claim.item] = claim

    def about(self, deployment: Subject) -> Mapping[str, Claim]:
        """By key of the item; the deployment's own goes before its team's."""
        own = self._deployments.get(deployment.pk, {})
        common = self._teams.get(deployment.team_id)
        return {**common, **own} if common else own


def _modes(ids: Sequence[int], moment: datetime | None) -> Mapping[int, str]:
    """Deployment -> disaggregated or unified, from the declared roles of its nodes, else from the
    roles that were read. A deployment with a node of unknown role is in neither unless another node
    is prefill or decode."""
    from kvaudit.fleet.models import Node, NodeSnapshot

    nodes = Node.objects.current() if moment is None else Node.objects.at(moment)
    read = NodeSnapshot.objects.filter(node=OuterRef("pk"))
    if moment is not None:
        read = read.filter(first_seen__lte=moment)
    latest = Subquery(read.order_by("-first_seen", "-pk").values("role")[:1])
    roles: dict[int, set[str]] = defaultdict(set)
    for pk, declared, seen in (
        nodes.filter(among("deployment_id", ids))
        .order_by()
        .annotate(read_role=latest)
        .values_list("deployment_id", "role", "read_role")
    ):
        roles[pk].add(declared or seen or "")
    found = {}
    for pk, names in roles.items():
        if names & {"prefill", "decode"}:
            found[pk] = DISAGGREGATED
        elif names == {"unified"}:
            found[pk] = UNIFIED
    return found


class OwnItemQuerySet(IntervalQuerySet["OwnItem"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        """Items of the teams that the user sees."""
        from kvaudit.accounts.models import Team

        return self.filter(team__in=Team.objects.visible_to(user))


class ScopedQuerySet(models.QuerySet[Scoped]):
    """Rows of one deployment, or of all deployments of a team."""

    def visible_to(self, user: User | AnonymousUser) -> Self:
        """Rows whose deployment or team the user sees."""
        from kvaudit.accounts.models import Team
        from kvaudit.fleet.models import Deployment

        return self.filter(
            Q(deployment__in=Deployment.objects.visible_to(user)) | Q(team__in=Team.objects.visible_to(user))
        )

    def concerning(self, deployments: Iterable[int], teams: Iterable[int]) -> Self:
        return self.filter(among("deployment_id", deployments) | among("team_id", teams))

    def of(self, deployment: Deployment, item: str) -> Self:
        """Everything ever said about this item of this deployment, its team's included; newest first."""
        return self.filter(Q(deployment=deployment) | Q(team=deployment.team_id), item=item)

    def in_force(self, moment: datetime | None = None) -> Self:
        """Those that held at a moment (default: now): begun, not closed, not expired."""
        when = timezone.now() if moment is None else moment
        return self.filter(Q(valid_to=None) | Q(valid_to__gt=when), valid_from__lte=when, expires_at__gt=when)

    def ending(self, now: datetime, before: datetime) -> Self:
        """In force now and over before ``before``; soonest first."""
        return self.in_force(now).filter(expires_at__lte=before).order_by("expires_at", "pk")


class AttestationQuerySet(ScopedQuerySet["Attestation"]):
    pass


class WaiverQuerySet(ScopedQuerySet["Waiver"]):
    def pending(self, moment: datetime | None = None) -> Self:
        """Asked for, not decided, and not over before it began."""
        when = timezone.now() if moment is None else moment
        return self.filter(decision="pending", expires_at__gt=when)

    def to_decide_by(self, user: User, moment: datetime | None = None) -> Self:
        """Those that wait for a second person whom this user may be."""
        from kvaudit.accounts.models import Team
        from kvaudit.fleet.models import Deployment

        mine = Q(deployment__in=Deployment.objects.where_can(user, "approve"))
        mine |= Q(team__in=Team.objects.where_can(user, "approve"))
        return self.pending(moment).filter(mine).exclude(requester=user)


class DailyCountQuerySet(models.QuerySet["DailyCount"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        from kvaudit.accounts.models import Team

        return self.filter(team__in=Team.objects.visible_to(user))
