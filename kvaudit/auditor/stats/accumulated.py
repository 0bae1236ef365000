"""Adds up the canary's evidence of many runs to what is shown of one deployment now: bound, state, what is missing.
Pure.

A busy deployment gives a run few trials that a leak would have shown in, so no single night decides. A trial counts
with s x c: the chance that a stranger's text would have surfaced (pooled over the window, as one-sided 95 % lower limit
for each mode and tail) times the chance that the pages read were ours (its weight). Every run counts, none is dropped,
so that stopping when green does no harm. Trials belong to a build, not to a process, and a hit stays until somebody
records a fix.

What the bound says: P(no hit) = prod(1 - s c p) <= exp(-sum(s c) x p), where p is the leak rate's mean over the trials
as they were drawn. It is of these requests, at these times, on these replicas (simulated: it holds). Of the mean over
whole nights, or over replicas that were not asked, it is not (simulated: 6 % of fleets that leak in bursts of a night
exceed it, and most with one bad replica that no trial met): what strikes all trials of a night, or of a replica, or
none is one trial. `Accumulated.run_bound` and `replica_bound` say what is known of those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kvaudit.auditor.stats.bounds import effective_bound, lower_bound, upper_bound
from kvaudit.auditor.stats.run_evidence import BOUNDARY, PRODUCTION, STRATA, RunEvidence, Way

WINDOW, FRESH_WINDOW = timedelta(days=30), timedelta(days=7)
NEEDED, FRESH = 20.0, 7.5
"""Effective trials within `WINDOW` (in all, and in the boundary stratum by itself), and in production within
`FRESH_WINDOW`."""

DEARER = 0.25
"""For each hit on a build that is unchanged: who starts again after a hit has had one more chance to be lucky."""

TARGET = -math.log(0.05) / NEEDED
"""The bound that is shown when `NEEDED` is reached: 15 %."""

NIGHT = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Counted:
    """A run's effective trials, in all and by stratum, replica."""

    run: RunEvidence
    strata: Mapping[str, float]
    replicas: Mapping[str, float]

    @property
    def at(self) -> datetime:
        return self.run.at

    @property
    def total(self) -> float:
        return sum(self.strata.values())

    @property
    def boundary(self) -> float:
        return self.strata.get(BOUNDARY, 0.0)

    @property
    def production(self) -> float:
        return self.total if self.run.where == PRODUCTION else 0.0


@dataclass(frozen=True, slots=True)
class Rule:
    """One sum that has to be reached: of `part` of the runs, over `window`."""

    key: str
    part: Callable[[Counted], float]
    window: timedelta
    needs: float

    def has(self, counted: Iterable[Counted], now: datetime) -> float:
        return sum(self.part(one) for one in counted if now - self.window < one.at <= now)

    def lasts_until(self, counted: Sequence[Counted], now: datetime) -> datetime:
        """When it is missed for the first time, if nothing is added: the moment its sum drops below."""
        held = sorted((one for one in counted if now - self.window < one.at <= now), key=lambda one: one.at)
        left = sum(map(self.part, held))
        for one in held:
            left -= self.part(one)
            if left < self.needs:
                return one.at + self.window
        return now


@dataclass(frozen=True, slots=True)
class Accumulated:
    """The evidence of one build of a deployment at a moment. Numbers of trials are effective ones."""

    at: datetime
    build: str
    build_said: str
    counted: tuple[Counted, ...]  # runs of the window that count, oldest first
    rules: tuple[Rule, ...]
    hits: int  # runs on this build that found a leak, ever
    hit_at: datetime | None  # of the last one on any build, where no fix is recorded since
    doubt: str  # of the newest run that forbids a pass, where less than is fresh came after it
    since_doubt: tuple[Counted, ...] = field(repr=False)  # those of `counted` that may be fresh

    @property
    def total(self) -> float:
        return sum(one.total for one in self.counted)

    @property
    def dearer(self) -> float:
        return 1 + DEARER * self.hits

    @property
    def bound(self) -> float:
        """Upper bound on the share of requests drawn like these that leak, 95 % confidence."""
        return self.bound_of(self.total)

    def bound_of(self, trials: float) -> float:
        return min(1.0, effective_bound(trials) * self.dearer)

    @property
    def strata(self) -> dict[str, float]:
        return {name: sum(one.strata.get(name, 0.0) for one in self.counted) for name in STRATA}

    @property
    def bound_of_each(self) -> float:
        """What can be said of every stratum at once: ln(k / .05) over the weakest."""
        weakest = min(self.strata.values())
        return min(1.0, math.log(len(STRATA) / 0.05) * self.dearer / weakest) if weakest > 0 else 1.0

    @property
    def places(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for one in self.counted:
            found[one.run.where] = found.get(one.run.where, 0.0) + one.total
        return found

    @property
    def replicas(self) -> dict[str, float]:
        """Effective trials by replica; "" holds those of which nobody knows where they were answered."""
        found: dict[str, float] = {}
        for one in self.counted:
            for name, trials in one.replicas.items():
                found[name] = found.get(name, 0.0) + trials
        return found

    @property
    def replica_bound(self) -> float:
        """Upper bound on the share of replicas that leak always: each is one trial, however often it answered."""
        return _bound_of_clusters(self.replicas.values())

    @property
    def run_bound(self) -> float:
        """Upper bound on the share of runs in which everything leaks: each is one trial."""
        return _bound_of_clusters(one.total for one in self.counted)

    def has(self, rule: Rule) -> float:
        return rule.has(self.since_doubt if rule.window == FRESH_WINDOW else self.counted, self.at)

    @property
    def missing(self) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.rules if self.has(rule) < rule.needs)

    @property
    def green(self) -> bool:
        return bool(self.build) and self.hit_at is None and not self.missing

    @property
    def expires_at(self) -> datetime | None:
        """When the evidence is too old to be green, if no run is added; None where it is not green."""
        if not self.green:
            return None
        return min(
            rule.lasts_until(self.since_doubt if rule.window == FRESH_WINDOW else self.counted, self.at)
            for rule in self.rules
        )

    @property
    def night(self) -> dict[str, float]:
        """Mean of what a day with production runs added of late, by stratum."""
        of_late = [
            one for one in self.counted if one.run.where == PRODUCTION and one.at > self.at - FRESH_WINDOW
        ]
        days = {one.at.date() for one in of_late}
        return {
            name: sum(one.strata.get(name, 0.0) for one in of_late) / len(days) if days else 0.0
            for name in STRATA
        }

    @property
    def nights(self) -> int | None:
        """Nights like those of late until it is green; 0 = it is, None = never at this budget."""
        if self.green:
            return 0
        added, each = list(self.counted), self.night
        fresh = list(self.since_doubt)
        for night in range(1, WINDOW // NIGHT + 1):
            now = self.at + night * NIGHT
            run = RunEvidence(now, self.build, "", PRODUCTION, 0.0, (), {}, 0)
            for runs in (added, fresh):
                runs.append(Counted(run, each, {}))
            if all(
                rule.has(fresh if rule.window == FRESH_WINDOW else added, now) >= rule.needs
                for rule in self.rules
            ):
                return night
        return None

    def nights_to_show(self, rate: float = TARGET) -> float | None:
        """Nights like those of late within which a leak at this rate that starts today shows, 95 % confidence."""
        a_night = sum(self.night.values())
        return -math.log(0.05) / (rate * a_night) if a_night > 0 else None


def accumulate(
    runs: Iterable[RunEvidence], now: datetime, *, build: str | None = None, fixes: Iterable[datetime] = ()
) -> Accumulated:
    """All runs of one deployment that are known: those with hits of any age, the others of the last `WINDOW` at least.
    ``build``: what serves now; without it what the newest production run met. ``fixes``: when somebody recorded one."""
    known = sorted((one for one in runs if one.at <= now), key=lambda one: one.at)
    serving = _serving(known) if build is None else build
    hit_at = max((one.at for one in known if one.hits), default=None)
    fixed_at = max((at for at in fixes if at <= now), default=None)
    of_build = [one for one in known if serving and one.build == serving]
    hits = [one for one in known if one.hits and one.build in (serving, "")]
    began = now - WINDOW
    if hits and fixed_at is not None:
        began = max(began, fixed_at)  # before it the build leaked
    recent = [one for one in of_build if one.at > now - WINDOW]
    counted = tuple(_counted(one, _surfacing(recent)) for one in recent if one.at > began and not one.hits)
    doubtful = max((one.at for one in recent if one.doubt), default=None)
    needs = NEEDED * (1 + DEARER * len(hits))
    since_doubt = tuple(one for one in counted if doubtful is None or one.at > doubtful)
    rules = (
        Rule("total", lambda one: one.total, WINDOW, needs),
        Rule("boundary", lambda one: one.boundary, WINDOW, needs),
        Rule("fresh", lambda one: one.production, FRESH_WINDOW, FRESH),
    )
    return Accumulated(
        at=now,
        build=serving,
        build_said=next((one.build_said for one in reversed(of_build) if one.build_said), ""),
        counted=counted,
        rules=rules,
        hits=len(hits),
        hit_at=hit_at if hit_at is not None and (fixed_at is None or fixed_at <= hit_at) else None,
        doubt=next((one.doubt for one in reversed(recent) if one.doubt), "")
        if rules[-1].has(since_doubt, now) < FRESH
        else "",
        since_doubt=since_doubt,
    )


def _bound_of_clusters(trials: Iterable[float]) -> float:
    return effective_bound(sum(-math.expm1(-each) for each in trials))


def _serving(known: Sequence[RunEvidence]) -> str:
    """A newcomer's build serves nobody yet while production has another."""
    production = [one for one in known if one.where == PRODUCTION]
    return next((one.build for one in reversed(production or known)), "")


def _surfacing(recent: Iterable[RunEvidence]) -> dict[Way, float]:
    """The lower limits over all surfacing trials: a point estimate of ten lets one leak in thirteen through."""
    pooled: dict[Way, tuple[int, int]] = {}
    for one in recent:
        for way, (surfaced, trials) in one.surfacing.items():
            before = pooled.get(way, (0, 0))
            pooled[way] = before[0] + surfaced, before[1] + trials
    return {way: lower_bound(*counts) for way, counts in pooled.items()}


def _counted(run: RunEvidence, pooled: Mapping[Way, float]) -> Counted:
    """A run whose own surfacing contradicts the pool's (its model or its prompts changed, its build did not) counts
    with the most that its own allows."""
    strata: dict[str, float] = {}
    replicas: dict[str, float] = {}
    for trials in run.trials:
        own = run.surfacing.get(trials.way)
        share = min(pooled.get(trials.way, 0.0), upper_bound(*own, confidence=0.99) if own else 1.0)
        effective = run.counted * share * trials.weight
        strata[trials.stratum] = strata.get(trials.stratum, 0.0) + effective
        replicas[trials.replica] = replicas.get(trials.replica, 0.0) + effective
    return Counted(run, strata, replicas)
