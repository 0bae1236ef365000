"""What timed prompts showed: the times, the curve through them, and what lies far below it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING

from kvaudit.auditor.checks.asker import FOLLOWING_UP, REPLAY
from kvaudit.auditor.checks.misses_by_way import MissesByWay
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome
from kvaudit.auditor.checks.trials import Trial
from kvaudit.auditor.stats.cusum import first_alarm
from kvaudit.auditor.verdict import Evidence

if TYPE_CHECKING:
    from kvaudit.auditor.stats.ttft import Fit, Speed

FITTED = 40  # planned times below the judged lengths
LEAST_LENGTHS = 7
MOST_SIGMA = 0.5
"""Above this spread on the log scale the times are noise and nothing can be judged."""

BASELINE_RUNS = 10
SPREAD_FLOOR = 0.05  # least assumed spread of a run's residual, log scale

LONGEST = "longest"
"""Name of the trials of the longest accepted length, which a pass is about."""


@dataclass(slots=True)
class PrefillSeen:
    limits: Limits | None
    fitted: list[Trial] = field(default_factory=list)
    judged: list[Trial] = field(default_factory=list)
    asked: list[Trial] = field(default_factory=list)  # these, and what followed up their misses
    misses: MissesByWay = field(default_factory=MissesByWay)
    planned: int = 0  # timed prompts
    stopped: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    withheld: bool = False
    unaskable: bool = False
    unhealthy: str = ""
    earlier: Sequence[float] = ()  # median residuals of earlier runs since the last change, oldest first


class Timing:
    """The trials of a run against the curve through the fitted ones; ``curve`` is None where too few can be fitted, or
    where they scatter too much (``sigma``)."""

    def __init__(self, seen: PrefillSeen) -> None:
        self.seen = seen
        self.everything = [*seen.fitted, *seen.judged]
        self.refused_keys = [one for one in [*self.everything, *seen.asked] if one.outcome is Outcome.DENIED]
        self.usable = [one for one in seen.fitted if one.read and one.first_token]
        self.lengths = {one.tokens for one in self.usable}
        self.fitted = _fitted(self.usable) if self._enough else None
        self.curve = self.fitted if self.fitted is not None and self.fitted.sigma <= MOST_SIGMA else None
        self.compared = [(one, speed) for one in seen.judged if (speed := self.speed(one)) is not None]
        self.fast = [one for one, speed in self.compared if speed.too_fast]
        self.untestable = [one for one, speed in self.compared if not speed.testable and not speed.too_fast]
        self.answered = [
            one for one in seen.judged if one.name == LONGEST and one.outcome is Outcome.ANSWERED
        ]
        self.shown = [one for one, _ in self.compared if one.name == LONGEST and one.nonce is True]

    @property
    def _enough(self) -> bool:
        return len(self.lengths) >= LEAST_LENGTHS and len(self.usable) >= 0.9 * FITTED

    def speed(self, one: Trial) -> Speed | None:
        """None where there is no time, or no curve to hold it against."""
        from kvaudit.auditor.stats.ttft import judge

        if self.curve is None or one.outcome is not Outcome.ANSWERED or not one.first_token:
            return None
        return judge(self.curve, uncached(one), one.first_token)

    @property
    def unread(self) -> list[Trial]:
        """Answers without their nonce that came too fast, and did so again when the identical prompt was repeated."""
        misses = {id(miss.first): miss for miss in self.seen.misses.found}
        return [
            one
            for one in self.fast
            if one.nonce is False
            and id(one) in misses
            and misses[id(one)].replay is False
            and self._replayed_fast(one)
        ]

    def _replayed_fast(self, one: Trial) -> bool:
        asked = self.seen.asked
        at = next((number for number, other in enumerate(asked) if other is one), len(asked))
        last: Trial | None = None
        for other in asked[at + 1 :]:
            if other.name not in FOLLOWING_UP:
                break
            if other.name == REPLAY and other.tokens == one.tokens:
                last = other
        speed = self.speed(last) if last is not None else None
        return speed is not None and speed.too_fast and last is not None and last.nonce is False

    @property
    def refused_below(self) -> list[Trial]:
        limit = self.seen.limits.first_rejected if self.seen.limits is not None else None
        refused = (Outcome.REFUSED, Outcome.HIDDEN)
        return [one for one in self.everything if one.outcome in refused and limit and one.tokens < limit]


def _fitted(usable: Sequence[Trial]) -> Fit:
    from kvaudit.auditor.stats.ttft import fit

    return fit([uncached(one) for one in usable], [one.first_token or 0.0 for one in usable])


def uncached(one: Trial) -> int:
    """Tokens that had to be read; prompts are unique, so an unreported cache counts as none."""
    return max(1, one.tokens - (one.cached_tokens or 0))


def residual(usable: Sequence[Trial]) -> float | None:
    """This run's point on the chart across runs: by how much (log scale, median) the two longest fitted
    lengths differ from what the shorter ones foretell; negative = faster. None without enough lengths."""
    top = sorted({one.tokens for one in usable})[-2:]
    below = [one for one in usable if one.tokens not in top]
    if len({one.tokens for one in below}) < 5:
        return None
    curve = _fitted(below)
    return median(
        math.log((one.first_token or 1.0) / curve.expected(uncached(one)))
        for one in usable
        if one.tokens in top
    )


def drifted(earlier: Sequence[float], now: float | None) -> bool | None:
    """Whether long prompts have become faster over many runs: a lower CUSUM over runs since the last
    change, standardised by the first ten; None with fewer than ten earlier ones."""
    if now is None or len(earlier) < BASELINE_RUNS:
        return None
    base = earlier[:BASELINE_RUNS]
    middle, spread = fmean(base), max(stdev(base), SPREAD_FLOOR)
    return first_alarm((value - middle) / spread for value in (*earlier[BASELINE_RUNS:], now)) is not None
