"""What a canary run saw, as the verdict reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvaudit.auditor.checks.canary.dirtying import Record
from kvaudit.auditor.checks.misses import Misses
from kvaudit.auditor.checks.prober_protocol import Limits
from kvaudit.auditor.checks.serving import Serving
from kvaudit.auditor.checks.trials import Trial
from kvaudit.auditor.checks.ways import delivery
from kvaudit.auditor.text.markers import Marker
from kvaudit.auditor.verdict import Evidence


@dataclass(frozen=True, slots=True)
class Sighting:
    """A marker that surfaced where it should not. Only our own words: safe to show."""

    reader: str  # the tenant whose answer held it
    planted_by: str
    words: tuple[str, ...]
    run: int
    length: int  # tokens of the request that was answered
    cell: str
    round: int
    ordinals: tuple[int, ...]  # approximate pages of the planted text
    decoy: bool
    suspicious: bool
    earlier_run: bool = False
    no_ordinals: str = ""  # why the pages are unknown
    route: str = ""
    tail: str = ""

    @property
    def verified(self) -> bool:
        return not self.suspicious and not self.decoy

    @property
    def kind(self) -> str:
        if self.decoy:
            return "decoy"
        return "cross-tenant" if self.planted_by != self.reader else "cross-request"


@dataclass(frozen=True, slots=True)
class Asked:
    """A trial and how it was asked. ``drawn``: whether its length was, so that it is the trial of its round.
    ``surfaced``: the own phrase came back, as a stranger's would have from the stranger's pages."""

    trial: Trial
    mode: str
    stream: bool
    tail: str
    drawn: bool = False
    surfaced: bool = False

    @property
    def parts(self) -> tuple[str, str]:
        return self.mode, delivery(self.stream)

    @property
    def route(self) -> str:
        return ", ".join(self.parts)


@dataclass(frozen=True, slots=True)
class UnknownAnswer:
    """An answer whose words are neither its prompt's nor the model's own. Its text is sealed: only how long it is
    leaves, and a hash that says nothing outside the run."""

    tokens: int
    cell: str
    round: int
    characters: int
    hmac: str


@dataclass(slots=True)
class CanarySeen:
    """All rounds of a run."""

    limits: Limits | None
    tenants: tuple[str, ...] = ()
    planned: int = 0
    planned_trials: int = 0  # requests below the limit, those before the rounds among them
    trials: list[Trial] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)  # the same, with how they were asked
    misses: dict[tuple[str, str], Misses] = field(default_factory=dict)  # by mode and tail
    sightings: list[Sighting] = field(default_factory=list)
    unknown: list[UnknownAnswer] = field(default_factory=list)
    own_tokens: int = 0
    served: Record = field(default_factory=Record)
    windows: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Round -> readings of the counters before its victim, before its drawn request and after that one's answer."""
    serving: Serving = field(default_factory=Serving)
    not_filled: str = ""  # why the run did not begin by serving a pool of own frames
    planted: list[Marker] = field(default_factory=list)  # live for 30 days, like the decoys
    decoys: list[Marker] = field(default_factory=list)
    earlier: int = 0  # live markers of earlier runs that were looked for as well
    left_out: dict[str, str] = field(default_factory=dict)  # cell -> how it kept ending
    untested: tuple[str, ...] = ()
    idle: float = 0.0  # seconds that the target was left alone
    scope: str = ""
    rounds_done: int = 0
    repeats: int = 0  # further requests after a hit, to estimate the rate
    repeat_hits: int = 0
    stopped: str = ""
    unhealthy: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    withheld: bool = False
    unaskable: str = ""
