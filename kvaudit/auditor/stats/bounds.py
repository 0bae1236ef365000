"""Bounds on rates from few events: what a clean run may claim.

Without numpy and scipy: a verified leak is counted with these, and must be said by the base installation too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def upper_bound(hits: int, trials: int, confidence: float = 0.95) -> float:
    """One-sided Clopper-Pearson upper bound on a rate; 1.0 without trials (nothing was learnt)."""
    _count(hits, trials)
    if hits >= trials:
        return 1.0
    if hits == 0:
        return float(-math.expm1(math.log1p(-confidence) / trials))  # 1 - 0.05^(1/n), exact at k = 0
    return _rate_with_tail(hits, trials, 1 - confidence)


def interval(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Two-sided Clopper-Pearson interval; (0, 1) without trials."""
    _count(hits, trials)
    if trials == 0:
        return 0.0, 1.0
    alpha = (1 - confidence) / 2
    low = 0.0 if hits == 0 else 1 - _rate_with_tail(trials - hits, trials, alpha)  # the misses' upper end
    high = 1.0 if hits == trials else _rate_with_tail(hits, trials, alpha)
    return low, high


def lower_bound(hits: int, trials: int, confidence: float = 0.95) -> float:
    """One-sided Clopper-Pearson lower bound on a rate; 0.0 without trials."""
    return 1.0 - upper_bound(trials - hits, trials, confidence) if trials else 0.0


def effective_bound(trials: float, confidence: float = 0.95) -> float:
    """Upper bound on the chance that such a request leaks, from so many *effective* clean trials: each counts with
    the chance that a leak would have been seen in it (surfacing x dirtying). 1.0 for none."""
    return min(1.0, -math.log1p(-confidence) / trials) if trials > 0 else 1.0


def leak_bound(trials: int, surfacing: float, dirtying: float, confidence: float = 0.95) -> float:
    """Upper bound on the chance that such a request leaks, from ``trials`` clean ones, corrected for
    the share of leaks that would have shown: bound / (c * s), capped at 1 (methods.md 2.a)."""
    if not (0 <= surfacing <= 1 and 0 <= dirtying <= 1):
        raise ValueError("surfacing and dirtying are shares between 0 and 1")
    visible = surfacing * dirtying
    return 1.0 if visible == 0 else min(1.0, upper_bound(0, trials, confidence) / visible)


def critical_count(trials: int, rate: float, alpha: float = 0.01) -> int:
    """Largest c with P(X <= c) <= alpha for X ~ Binomial(trials, rate): at or below it the
    observed count is too low for that rate. -1 when even zero is not surprising."""
    if trials < 0 or not 0 <= rate <= 1:
        raise ValueError("trials is not negative and rate a share between 0 and 1")
    cumulative, largest = 0.0, -1
    for count in range(trials + 1):
        cumulative += math.comb(trials, count) * rate**count * (1 - rate) ** (trials - count)
        if cumulative > alpha:
            break
        largest = count
    return largest


def binomial_limit(trials: int, rate: float, confidence: float = 0.99) -> int:
    """Smallest count that X ~ Binomial(trials, rate) does not exceed with this confidence: more is no chance."""
    if trials < 0 or not 0 <= rate <= 1:
        raise ValueError("trials is not negative and rate a share between 0 and 1")
    cumulative = 0.0
    for count in range(trials + 1):
        cumulative += _chance_of(count, trials, rate)
        if cumulative >= confidence:
            return count
    return trials


def stratified_greater(tables: Sequence[tuple[int, int, int, int]]) -> float:
    """One-sided exact p-value that rates exceed their controls', over several strata together: (hits, trials, control
    hits, control trials) each. Each stratum is compared with its own controls only (Cochran, Mantel and Haenszel; the
    sum of hypergeometric counts by convolution), so strata of unlike rates do no harm. 1.0 for none."""
    chances, seen = [1.0], 0
    for hits, trials, control_hits, control_trials in tables:
        _count(hits, trials)
        _count(control_hits, control_trials)
        marked, ways = hits + control_hits, math.comb(trials + control_trials, hits + control_hits)
        counts = [
            math.comb(trials, count) * math.comb(control_trials, marked - count) / ways
            if count <= marked
            else 0.0
            for count in range(trials + 1)
        ]
        seen += hits
        total = [0.0] * (len(chances) + trials)
        for before, chance in enumerate(chances):
            for count, more in enumerate(counts):
                total[before + count] += chance * more
        chances = total
    return min(1.0, math.fsum(chances[seen:]))


def at_least(hits: int, trials: int, rate: float) -> float:
    """P(X >= hits) for X ~ Binomial(trials, rate)."""
    _count(hits, trials)
    return min(1.0, math.fsum(_chance_of(count, trials, rate) for count in range(hits, trials + 1)))


def _chance_of(count: int, trials: int, rate: float) -> float:
    """P(X = count) for X ~ Binomial(trials, rate). By logarithms: thousands of trials have more ways than a float
    holds."""
    if rate in (0.0, 1.0):
        return float(count == trials * rate)
    ways = math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
    return math.exp(ways + count * math.log(rate) + (trials - count) * math.log1p(-rate))


def fisher_greater(hits: int, trials: int, control_hits: int, control_trials: int) -> float:
    """One-sided Fisher exact p-value that the first rate exceeds the control's; 1.0 when either
    side has no trial. Hypergeometric tail, summed with integers."""
    _count(hits, trials)
    _count(control_hits, control_trials)
    if trials == 0 or control_trials == 0:
        return 1.0
    total, marked = trials + control_trials, hits + control_hits
    ways = sum(
        math.comb(trials, k) * math.comb(control_trials, marked - k)
        for k in range(hits, min(trials, marked) + 1)
        if marked - k <= control_trials
    )
    return min(1.0, ways / math.comb(total, marked))


def _rate_with_tail(hits: int, trials: int, tail: float) -> float:
    """The rate p with P(X <= hits) = ``tail`` for X ~ Binomial(trials, p), hits < trials: the Clopper-Pearson upper
    end, which is the quantile 1 - tail of Beta(hits + 1, trials - hits). By bisection, since P falls as p rises."""
    ways = [
        math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
        for count in range(hits + 1)
    ]
    low, high = 0.0, 1.0
    while (middle := (low + high) / 2) not in (low, high):
        log_p, log_q = math.log(middle), math.log1p(-middle)
        at_most = math.fsum(
            math.exp(way + count * log_p + (trials - count) * log_q) for count, way in enumerate(ways)
        )
        low, high = (middle, high) if at_most > tail else (low, middle)
    return high


def _count(hits: int, trials: int) -> None:
    if not 0 <= hits <= trials:
        raise ValueError(f"{hits} hits in {trials} trials is not a count")
