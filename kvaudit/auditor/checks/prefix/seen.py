"""What the arms of the prefix check saw, as the verdict reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kvaudit.auditor.checks.prefix.contents import Recalled
from kvaudit.auditor.checks.prefix.responses import Lots, Twins
from kvaudit.auditor.checks.trials import Trial
from kvaudit.auditor.verdict import Evidence

if TYPE_CHECKING:
    from kvaudit.auditor.stats.timing import Comparison

ALPHA = 5e-7  # per look, two looks
LEAST_GAIN = 0.05
LEAST_TIMES = 50
DRIFT = 1e-3  # a null arm below this is no null


@dataclass(frozen=True, slots=True)
class Cached:
    """Cached tokens that one request reported; None = not reported."""

    arm: str  # own, cross, stolen salt, tier own, tier cross
    repeat: int
    cached: int | None
    tokens: int
    tenant: str = ""  # who asked, where it was another than the arm's usual one
    mode: str = ""


@dataclass
class PrefixSeen:
    """``hits``, ``misses``, ``own_hits``, ``nulls`` are first-token seconds of the timing arms."""

    tenants: tuple[str, ...] = ()
    tolerance: int = 64  # tokens: a page, and what the target puts before every prompt
    recalled: list[Recalled] = field(default_factory=list)
    twins: list[Twins] = field(default_factory=list)
    counts: list[Cached] = field(default_factory=list)
    hits: list[float] = field(default_factory=list)
    misses: list[float] = field(default_factory=list)
    own_hits: list[float] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    tier_asked: bool = False
    lots: list[Lots] = field(default_factory=list)
    entry_sets_salts: bool = False
    salted: bool = False
    parts: int = 0  # of `PARTS`, done
    stopped: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    unaskable: str = ""
    unhealthy: str = ""

    def asked(self, arm: str) -> list[Cached]:
        return [one for one in self.counts if one.arm == arm]

    def over(self, arm: str) -> list[Cached]:
        """With more cached tokens than prompts may share."""
        return [one for one in self.asked(arm) if one.cached is not None and one.cached > self.tolerance]

    @cached_property
    def timing(self) -> Timing | None:
        """None with too few times to compare."""
        if min(len(self.hits), len(self.misses), len(self.own_hits)) < LEAST_TIMES:
            return None
        from kvaudit.auditor.stats.timing import differ, faster

        middle = len(self.misses) // 2
        null = differ(self.misses[:middle], self.misses[middle:])  # in the order of time: drift shows
        return Timing(
            faster(self.hits, self.misses), faster(self.own_hits, self.misses), null, len(self.hits)
        )


@dataclass(frozen=True, slots=True)
class Timing:
    """Another tenant's stored prefixes, and one's own, against fresh ones. ``null``: p that two halves of the fresh
    ones differ."""

    cross: Comparison
    own: Comparison
    null: float
    samples: int

    @property
    def drifted(self) -> bool:
        return self.null < DRIFT

    @property
    def shared(self) -> bool:
        return self.cross.p < ALPHA and self.cross.median_gain > LEAST_GAIN

    @property
    def shows_the_cache(self) -> bool:
        """Whether times tell hits from misses where both are one tenant's."""
        return self.own.p < ALPHA

    def as_measure(self) -> dict[str, Any]:
        return {
            "p": self.cross.p,
            "auc": round(self.cross.auc, 4),
            "median_gain": round(self.cross.median_gain, 4),
            "own_p": self.own.p,
            "own_auc": round(self.own.auc, 4),
            "null_p": self.null,
            "samples": self.samples,
        }
