"""What a run under load saw, as the verdict reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvaudit.auditor.checks.misses_by_way import MissesByWay
from kvaudit.auditor.checks.prober_protocol import Limits
from kvaudit.auditor.checks.trials import Trial
from kvaudit.auditor.verdict import Evidence


@dataclass(frozen=True, slots=True)
class Sighting:
    """A marker in an answer to another request: only our own words, safe to show."""

    reader: str
    planted_by: str
    words: tuple[str, ...]
    run: int
    tokens: int  # of the request that was answered
    planted_tokens: int
    arm: str
    decoy: bool
    suspicious: bool

    @property
    def kind(self) -> str:
        if self.decoy:
            return "decoy"
        return "cross-tenant" if self.planted_by != self.reader else "cross-request"


@dataclass(slots=True)
class Use:
    """What was seen of the pool during one arm: the fullest node's share at each look."""

    shares: list[float] = field(default_factory=list)
    looks: int = 0

    @property
    def peak(self) -> float | None:
        return max(self.shares, default=None)


@dataclass(frozen=True, slots=True)
class Visit:
    """One return visit. Counts of facts asked and found; ``cached`` is what the first question after
    the fillers reported, None = not reported."""

    number: int
    before: tuple[int, int]  # found, asked: right after it was stored
    after: tuple[int, int]  # found, asked: after the pool was pushed past 100 %
    fresh: tuple[int, int]  # found, asked: of a session stored at that moment
    filler_tokens: int
    cached: int | None = None


@dataclass(slots=True)
class ConcurrencySeen:
    """All arms of a run, and the return visits."""

    limits: Limits | None
    tenants: tuple[str, ...] = ()
    planned: int = 0
    workers: int = 0
    order: tuple[str, ...] = ()
    trials: list[Trial] = field(default_factory=list)
    misses: MissesByWay = field(default_factory=MissesByWay)
    sightings: list[Sighting] = field(default_factory=list)
    use: dict[str, Use] = field(default_factory=dict)
    own_markers: int = 0  # answers, read to the end, that hold the request's own marker
    own_asked: int = 0
    aborts_planned: int = 0
    retried: int = 0
    loop_looks: int = 0
    loop_late: int = 0
    visits: list[Visit] = field(default_factory=list)
    visits_planned: int = 0
    no_visit: str = ""
    stopped: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    unaskable: str = ""

    @property
    def hits(self) -> list[Sighting]:
        return [one for one in self.sightings if not one.suspicious and not one.decoy]
