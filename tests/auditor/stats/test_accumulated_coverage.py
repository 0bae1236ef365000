"""The bounds hold in simulated fleets: what leaks is drawn, and the claim is held against it."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from scipy import stats

from kvaudit.auditor.stats.accumulated import accumulate
from kvaudit.auditor.stats.run_evidence import RunEvidence, Trials

NOW = datetime(2026, 12, 1, 4, tzinfo=UTC)
WAY = ("ids", "phrase")
FLEETS, NIGHTS, ROUNDS, REPLICAS = 300, 6, 12, 4


def fleet(draw, rate, kind):
    """Runs of a leaking fleet without a hit (None where one was found), with the leak's mean over the trials, over all
    nights and replicas, and the shares of nights and of replicas that leak.

    A request leaks at ``rate``: always alike (independent), only in some nights (bursts), on one replica of four with
    each trial anywhere (one bad), or each run on one replica (sticky), or only while others keep the pool (busy)."""
    runs, seen, weights = [], 0.0, 0.0
    bad = draw.randrange(REPLICAS)
    bursts = [draw.random() < 0.4 for _ in range(NIGHTS)]
    for night in range(NIGHTS):
        ours = draw.uniform(0.05, 1)
        stays = draw.randrange(REPLICAS)
        answered = {}
        for _ in range(ROUNDS):
            replica = stays if kind == "sticky" else draw.randrange(REPLICAS)
            leaks = {
                "bursts": rate / 0.4 * bursts[night],
                "one bad": rate * REPLICAS * (replica == bad),
                "sticky": rate * REPLICAS * (replica == bad),
                "busy": 2 * rate * (ours < 0.525),
            }.get(kind, rate)
            if draw.random() < min(1, leaks) * 0.8 * ours:
                return None
            seen, weights = seen + min(1, leaks) * ours, weights + ours
            answered[replica] = answered.get(replica, 0) + 1
        surfaced = sum(draw.random() < 0.8 for _ in range(ROUNDS))
        rows = tuple(Trials("edge", WAY, str(each), n, n * ours) for each, n in answered.items())
        at = NOW - timedelta(days=night)
        runs.append(RunEvidence(at, "b", "", "production", 0.0, rows, {WAY: (surfaced, ROUNDS)}, 0))
    return runs, seen / weights


@pytest.mark.parametrize("kind", ["independent", "bursts", "one bad", "sticky", "busy"])
def test_the_bound_holds_for_what_was_asked(kind):
    """In at least 95 % of fleets (binomial test at 1 %): of the requests as they were drawn, when and where."""
    draw = random.Random(f"20261201 {kind}")
    exceeded = clean = 0
    for _ in range(FLEETS):
        found = fleet(draw, rate=draw.choice((0.05, 0.1)), kind=kind)
        if found is not None:
            runs, leaked = found
            clean += 1
            exceeded += accumulate(runs, NOW).bound < leaked
    assert clean > 20  # silence of a fleet is what the bound speaks of
    assert stats.binomtest(exceeded, FLEETS, 0.05, alternative="greater").pvalue > 0.01


def test_whole_nights_and_replicas_that_leak_have_bounds_of_their_own():
    """Where all trials of a night, or of a replica, share their fate, they are one trial."""
    draw = random.Random(20261202)
    nights = replicas = 0
    for _ in range(FLEETS):
        leaking = 0.25
        fates = [draw.random() < leaking for _ in range(8)]
        if any(fates):
            continue
        rows = [(Trials("edge", WAY, f"r{each}", 60, 60.0),) for each in range(8)]
        runs = [
            RunEvidence(
                NOW - timedelta(days=each), "b", "", "production", 0.0, rows[each], {WAY: (90, 90)}, 0
            )
            for each in range(8)
        ]
        state = accumulate(runs, NOW)
        assert state.bound < 0.01
        nights += state.run_bound < leaking
        replicas += state.replica_bound < leaking
    assert stats.binomtest(max(nights, replicas), FLEETS, 0.05, alternative="greater").pvalue > 0.01
