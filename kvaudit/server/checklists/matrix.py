"""Computes deployments x items at one moment. How every cell stands is known at once; what stands behind a cell
is worked out when somebody looks, since a page counts thousands of cells and shows few."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kvaudit.server.audits.state.bulk_reads import when
from kvaudit.server.checklists.evaluation import RANK, Cell, CheckInterval, Claim, Status, by_ranks, evaluate
from kvaudit.server.checklists.items import Item

if TYPE_CHECKING:
    from kvaudit.server.accounts.models import Team

WORST_FIRST = (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE, Status.WAIVED, Status.ATTESTED, Status.PASS)

Items = Mapping[str, Item]
"""By key, in the order of the checklist."""


def combine(statuses: Iterable[Status]) -> Status:
    """The roll-up: any fail, else any error, else any inconclusive, else by waiver, by attestation, pass.
    What is not applicable does not count; nothing at all is inconclusive, for nothing was learnt."""
    seen = set(statuses)
    for status in WORST_FIRST:
        if status in seen:
            return status
    return Status.NOT_APPLICABLE if seen else Status.INCONCLUSIVE


@dataclass(slots=True)
class Cells(Mapping[str, Cell]):
    """The cells of one deployment, and all that they are computed from (see `evaluate`). ``states`` are rows of
    `CheckInterval`; ``moment`` and ``created_at`` are microseconds; claims are by the key of their item."""

    items_by_key: Items
    states: Sequence[tuple[Any, ...]]
    moment: int
    created_at: int
    attested: Mapping[str, Claim]
    waived: Mapping[str, Claim]
    mode: str
    _made: dict[str, Cell] = field(default_factory=dict)
    _intervals: dict[str, list[CheckInterval]] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Cell:
        cell = self._made.get(key)
        if cell is None:
            item = self.items_by_key[key]
            for check in item.checks:
                if check not in self._intervals:
                    self._intervals[check] = _of_check(check, self.states)
            cell = self._made[key] = evaluate(
                item,
                self._intervals,
                self.moment,
                created_at=self.created_at,
                attestation=self.attested.get(key),
                waiver=self.waived.get(key),
                mode=self.mode,
            )
        return cell

    def ranks(self) -> dict[str, int]:
        """Check -> the worst of its states (`RANK`). A page asks it of every deployment, and makes few cells."""
        worst: dict[str, int] = {}
        for _, _, _, check, verdict, _, _, expires_at, *_ in self.states:
            rank = 1 if expires_at <= self.moment else RANK.get(verdict, 2)
            if rank > worst.get(check, -1):
                worst[check] = rank
        return worst

    def __contains__(self, key: object) -> bool:
        return key in self.items_by_key

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_by_key)

    def __len__(self) -> int:
        return len(self.items_by_key)


def _of_check(check: str, states: Sequence[tuple[Any, ...]]) -> list[CheckInterval]:
    """The deployment's own and those of its nodes: always in one order."""
    intervals = [CheckInterval._make(row) for row in states if row[3] == check]
    return (
        sorted(intervals, key=lambda interval: (interval.since, interval.run_id, interval.verdict))
        if len(intervals) > 1
        else intervals
    )


class Controls(NamedTuple):
    """How many items of the checklist are met, of those that apply."""

    met: int
    total: int

    def __str__(self) -> str:
        return f"{self.met} of {self.total} controls met"


class Subject(NamedTuple):
    """A deployment as far as its row shows it: a model instance is dear, and a page has thousands.
    ``created_at`` is microseconds."""

    pk: int
    slug: str
    team_id: int
    engine: str
    owner: str
    contact: str
    created_at: int
    team: Team


@dataclass(slots=True)
class MatrixRow:
    """A deployment with its cells by key, in the order of the checklist. An item of another team's own
    list has no cell here. ``statuses`` are those of the cells, ``status`` is their roll-up."""

    deployment: Subject
    cells: Mapping[str, Cell]
    statuses: Mapping[str, Status]
    status: Status
    overdue_since: datetime | None = None

    @property
    def controls(self) -> Controls:
        """Met truly, by attestation or by waiver."""
        complying = [status.complies for status in self.statuses.values()]
        return Controls(complying.count(True), len(complying) - complying.count(None))

    @property
    def since(self) -> datetime:
        """Since when the deployment has stood as it does: all of the best, the first of anything worse."""
        moments = [self.cells[key].began for key, status in self.statuses.items() if status is self.status]
        if not moments:
            return when(self.deployment.created_at)
        return when(max(moments) if self.status.complies else min(moments))


@dataclass(slots=True)
class Matrix:
    """In the order of the queryset that was asked."""

    moment: datetime
    items: Sequence[Item]
    rows: Sequence[MatrixRow]

    def counts(self) -> dict[tuple[int, str, Status], int]:
        """(team id, item key, status) -> cells: what a day's snapshot keeps."""
        found: dict[tuple[int, str, Status], int] = {}
        for row in self.rows:
            team = row.deployment.team_id
            for key, status in row.statuses.items():
                place = (team, key, status)
                found[place] = found.get(place, 0) + 1
        return found


class MatrixRows:
    """Makes rows. Deployments of which the same is known share their statuses: most of a fleet does."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Mapping[str, Status], Status]] = {}

    def row(self, deployment: Subject, cells: Cells, overdue_since: datetime | None) -> MatrixRow:
        ranks = cells.ranks()
        pattern = (id(cells.items_by_key), cells.mode, frozenset(ranks.items()))
        known = self._known.get(pattern)
        if known is None:
            plain = {key: by_ranks(item, ranks, cells.mode) for key, item in cells.items_by_key.items()}
            known = self._known[pattern] = plain, combine(plain.values())
        statuses, status = known
        if cells.attested or cells.waived:
            claimed = {key: cells[key].status for key in {**cells.attested, **cells.waived} if key in cells}
            statuses = {**statuses, **claimed}
            status = combine(statuses.values())
        return MatrixRow(deployment, cells, statuses, status, overdue_since)
