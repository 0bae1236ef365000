"""What is known of deployments within a span of time, and how every item stood for them at any moment of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, Subquery

from kvaudit.server.accounts.models import Team
from kvaudit.server.audits.models import CheckState, Overdue
from kvaudit.server.audits.state.bulk_reads import Micros, among, micros
from kvaudit.server.audits.state.bulk_reads import when as moment_of
from kvaudit.server.checklists.evaluation import Claim
from kvaudit.server.checklists.items import DISAGGREGATED, UNIFIED, Item, shipped
from kvaudit.server.checklists.matrix import Cells, Items, Matrix, MatrixRows, Subject
from kvaudit.server.checklists.models.claims import Attestation, Waiver
from kvaudit.server.checklists.models.own_items import OwnItem
from kvaudit.server.fleet.models import DeploymentQuerySet, Node, NodeSnapshot

_Held = Sequence[tuple[Any, ...]]
"""Rows of which the first two columns say from when and until when they held, in microseconds; None: still."""

_SUBJECT = (
    Micros("created_at"), Micros("retired_at"), "pk", "slug", "team_id", "engine", "owner", "contact",
)  # fmt: skip
_SAYS = (
    Micros("since"), Micros("closed_at"), "deployment_id", "check_id", "verdict", "warn", "severity",
    Micros("expires_at"), "expired_by", "run_id", "recalled", "bound",
)  # fmt: skip
_CLAIM = (
    Micros("valid_from"), Micros("valid_to"), "pk", "item", "deployment_id", "team_id", Micros("expires_at"),
)  # fmt: skip


class Facts:
    """Read once: seven queries, however many deployments. Rows stay the tuples that they were read as, since a
    fleet has thousands of them and a page shows few.

    ``since`` None is now, and what is read is what holds; otherwise everything that held at some moment from
    ``since`` to ``until``, both included.
    """

    def __init__(self, deployments: DeploymentQuerySet, since: datetime | None, until: datetime) -> None:
        self._since, self._until = since, until
        first = until if since is None else since
        self._deployments: _Held = list(deployments.values_list(*_SUBJECT))
        self._ids = [row[2] for row in self._deployments]
        self._teams = Team.objects.in_bulk({row[4] for row in self._deployments})
        own = OwnItem.objects.between(first, until).filter(team_id__in=self._teams)
        self._own = list(own.order_by("key", "team_id"))
        states = CheckState.objects.as_of() if since is None else CheckState.objects.between(since, until)
        states = states.filter(among("deployment_id", self._ids)).recalling().bounding()
        self._states: dict[int, list[tuple[Any, ...]]] = {pk: [] for pk in self._ids}
        for row in states.order_by().values_list(*_SAYS):
            self._states[row[2]].append(row)
        self._attested = self._claims(Attestation.objects.in_force_between(first, until), "author")
        self._waived = self._claims(Waiver.objects.in_force_between(first, until), "requester", "decided_by")
        late = Overdue.objects.between(first, until).filter(among("deployment_id", self._ids))
        self._late: _Held = list(late.values_list(Micros("since"), Micros("until"), "deployment_id"))

    def _claims(self, rows: Any, *people: str) -> _Held:
        names = [f"{person}__username" for person in people]
        return list(rows.concerning(self._ids, self._teams).values_list(*_CLAIM, *names))

    def at(self, moment: datetime) -> Matrix:
        """How every item stood at a moment of the span. Where that is longer than a moment: for the deployments
        that existed then. One more query where an item is only for one mode of serving."""
        at = micros(moment)
        own: dict[int, list[Item]] = defaultdict(list)
        for row in self._own:
            if row.valid_from <= moment and (row.valid_to is None or row.valid_to > moment):
                own[row.team_id].append(row.as_item())
        common = shipped(moment).items
        items: dict[int, Items] = {
            team: {item.key: item for item in (*common, *own.get(team, ()))} for team in self._teams
        }
        every = [*common, *(item for several in own.values() for item in several)]
        limited = any(item.applies_to for item in every)
        modes = _modes(self._ids, None if self._since is None else moment) if limited else {}
        attested = _Claims(self._held(self._attested, at), at)
        waived = _Claims(self._held(self._waived, at), at)
        late: dict[int, int] = {}
        for since, _, pk in self._held(self._late, at):
            late[pk] = min(since, late.get(pk, since))
        rows = MatrixRows()
        shown = []
        for created_at, _, pk, slug, team_id, engine, owner, contact in self._held(self._deployments, at):
            cells = Cells(
                items[team_id],
                self._held(self._states[pk], at),
                at,
                created_at,
                attested.about(pk, team_id),
                waived.about(pk, team_id),
                modes.get(pk, ""),
            )
            subject = Subject(pk, slug, team_id, engine, owner, contact, created_at, self._teams[team_id])
            overdue = moment_of(late[pk]) if pk in late else None
            shown.append(rows.row(subject, cells, overdue))
        return Matrix(moment, every, shown)

    def _held(self, rows: _Held, at: int) -> _Held:
        """Those that held at a moment: from inclusive, to exclusive."""
        if self._since in (None, self._until):
            return rows
        return [row for row in rows if row[0] <= at and (row[1] is None or row[1] > at)]


class _Claims:
    """Claims in force at a moment, by scope and item."""

    def __init__(self, rows: _Held, at: int) -> None:
        self._deployments: dict[int, dict[str, Claim]] = defaultdict(dict)
        self._teams: dict[int, dict[str, Claim]] = defaultdict(dict)
        for claim in (Claim(*row) for row in rows):
            if claim.expires_at <= at:
                continue
            if claim.deployment_id is not None:
                self._deployments[claim.deployment_id][claim.item] = claim
            elif claim.team_id is not None:
                self._teams[claim.team_id][claim.item] = claim

    def about(self, deployment: int, team: int) -> Mapping[str, Claim]:
        """By key of the item; the deployment's own goes before its team's."""
        own = self._deployments.get(deployment, {})
        common = self._teams.get(team)
        return {**common, **own} if common else own


def _modes(ids: Sequence[int], moment: datetime | None) -> Mapping[int, str]:
    """Deployment -> disaggregated or unified, from the declared roles of its nodes, else from the
    roles that were read. A deployment with a node of unknown role is in neither unless another node
    is prefill or decode."""
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
