"""What a canary run saw, as the verdict reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvaudit.auditor.checks.prober_protocol import Limits
from kvaudit.auditor.checks.trials import Trial
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

    @property
    def verified(self) -> bool:
        return not self.suspicious and not self.decoy

    @property
    def kind(self) -> str:
        if self.decoy:
            return "decoy"
        return "cross-tenant" if self.planted_by != self.reader else "cross-request"


@dataclass(slots=True)
class CanarySeen:
    """All rounds of a run. ``served_others`` is an estimate in tokens, None where counters hide it."""

    limits: Limits | None
    tenants: tuple[str, ...] = ()
    planned: int = 0
    trials: list[Trial] = field(default_factory=list)
    sightings: list[Sighting] = field(default_factory=list)
    surfaced: int = 0
    surfacing_trials: int = 0
    own_tokens: int = 0
    served_tokens: float | None = None
    planted: list[Marker] = field(default_factory=list)  # live for 30 days, like the decoys
    decoys: list[Marker] = field(default_factory=list)
    earlier: int = 0  # live markers of earlier runs that were looked for as well
    left_out: dict[str, str] = field(default_factory=dict)  # cell -> how it kept ending
    scope: str = ""
    rounds_done: int = 0
    repeats: int = 0  # further requests after a hit, to estimate the rate
    repeat_hits: int = 0
    stopped: str = ""
    unhealthy: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    withheld: bool = False
    unaskable: str = ""
