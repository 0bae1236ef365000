"""Bounds against scipy, against published tables, and against simulation."""

import numpy as np
import pytest
from scipy import stats

from kvaudit.auditor.stats.bounds import (
    at_least,
    binomial_limit,
    critical_count,
    fisher_greater,
    interval,
    leak_bound,
    stratified_greater,
    upper_bound,
)


@pytest.mark.parametrize(
    ("trials", "bound"), [(5, 0.45), (20, 0.14), (60, 0.049), (300, 0.0099), (3000, 0.0010)]
)
def test_a_clean_run_states_its_bound(trials, bound):
    assert upper_bound(0, trials) == pytest.approx(bound, rel=0.03)


@pytest.mark.parametrize("trials", [1, 2, 7, 59, 600])
@pytest.mark.parametrize("share", [0, 0.1, 0.5, 1])
def test_bounds_agree_with_scipy(trials, share):
    hits = round(share * trials)
    exact = stats.binomtest(hits, trials, alternative="less").proportion_ci(0.95, method="exact").high
    assert upper_bound(hits, trials) == pytest.approx(exact, abs=1e-9)
    both = stats.binomtest(hits, trials).proportion_ci(0.95, method="exact")
    assert interval(hits, trials) == pytest.approx((both.low, both.high), abs=1e-9)


def test_no_trial_teaches_nothing():
    assert upper_bound(0, 0) == 1.0
    assert interval(0, 0) == (0.0, 1.0)
    assert leak_bound(0, 1, 1) == 1.0
    assert leak_bound(1000, 0, 1) == 1.0


@pytest.mark.parametrize(("hits", "trials"), [(-1, 5), (6, 5), (1, 0)])
def test_impossible_counts_are_refused(hits, trials):
    with pytest.raises(ValueError):
        upper_bound(hits, trials)


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.3])
def test_the_95_percent_bound_covers_the_true_rate(rate):
    """Coverage over 10,000 simulated runs is not below 95 % (binomial test at 1 %)."""
    rng = np.random.default_rng(20261129)
    hits = rng.binomial(60, rate, 10_000)
    bounds = {k: upper_bound(int(k), 60) for k in np.unique(hits)}
    covered = sum(bounds[k] >= rate for k in hits)
    assert stats.binomtest(covered, 10_000, 0.95, alternative="less").pvalue > 0.01


@pytest.mark.parametrize(
    ("trials", "rate", "critical"),
    [
        (5, 0.90, 2),
        (8, 0.90, 4),
        (10, 0.90, 5),
        (5, 0.98, 3),
        (8, 0.98, 5),
        (10, 0.95, 6),
        (10, 0.98, 7),
        (3, 0.5, -1),
    ],
)
def test_critical_counts_of_the_published_table(trials, rate, critical):
    assert critical_count(trials, rate) == critical
    assert (
        stats.binom.cdf(critical, trials, rate) <= 0.01
        if critical >= 0
        else stats.binom.cdf(0, trials, rate) > 0.01
    )
    assert stats.binom.cdf(critical + 1, trials, rate) > 0.01


@pytest.mark.parametrize(
    "table", [(8, 50, 0, 50), (0, 50, 0, 50), (4, 50, 1, 200), (50, 50, 0, 3), (1, 1, 0, 1)]
)
def test_fisher_agrees_with_scipy(table):
    hits, trials, control_hits, control_trials = table
    expected = stats.fisher_exact(
        [[hits, trials - hits], [control_hits, control_trials - control_hits]], alternative="greater"
    ).pvalue
    assert fisher_greater(*table) == pytest.approx(expected, rel=1e-9)


def test_fisher_without_a_control_is_never_significant():
    assert fisher_greater(5, 5, 0, 0) == 1.0


@pytest.mark.parametrize(
    ("trials", "rate", "limit"),
    [(120, 0.0, 0), (120, 1 / 30, 9), (120, 0.0003, 1), (10, 1.0, 10), (0, 0.5, 0)],
)
def test_what_chance_brings(trials: int, rate: float, limit: int) -> None:
    """One of 100 runs brings more."""
    assert binomial_limit(trials, rate) == limit
    assert binomial_limit(trials, rate, 0.5) <= limit


def test_a_rate_is_a_share() -> None:
    with pytest.raises(ValueError, match="share"):
        binomial_limit(10, 1.5)


def test_one_stratum_is_fishers_test_and_several_are_exact_together() -> None:
    for table in ((3, 29, 0, 52), (1, 25, 2, 30), (0, 20, 0, 36), (20, 20, 0, 36)):
        assert stratified_greater([table]) == pytest.approx(fisher_greater(*table))
    weak = [(3, 29, 0, 52), (1, 25, 0, 30), (2, 20, 0, 36), (3, 20, 0, 36)]
    assert min(fisher_greater(*table) for table in weak) > 0.01
    assert stratified_greater(weak) < 0.001
    assert stratified_greater([]) == 1.0
    assert stratified_greater([(0, 0, 0, 40), (0, 60, 0, 0)]) == 1.0
    # one way babbles always, the other never: unequal shares of them are no excess
    assert stratified_greater([(30, 30, 10, 10), (0, 10, 0, 30)]) == pytest.approx(1.0)


def test_tails_of_thousands_of_trials_agree_with_scipy() -> None:
    for trials, rate in ((12, 0.2), (600, 0.03), (5_000, 0.2), (5_000, 0.5)):
        known = stats.binom(trials, rate)
        for hits in (0, 1, trials // 5, trials // 2, trials):
            assert at_least(hits, trials, rate) == pytest.approx(known.sf(hits - 1), rel=1e-6, abs=1e-290)
        assert binomial_limit(trials, rate) == known.ppf(0.99)
    assert (at_least(0, 9, 0.0), at_least(1, 9, 0.0), at_least(9, 9, 1.0)) == (1.0, 0.0, 1.0)
