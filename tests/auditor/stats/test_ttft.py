"""The prefill fit: silent on honest engines, certain on a one-page prefill."""

import numpy as np
import pytest

from kvaudit.auditor.stats.cusum import first_alarm
from kvaudit.auditor.stats.timing import differ, faster
from kvaudit.auditor.stats.ttft import fit, judge

LENGTHS = np.array([1_000, 8_000, 32_000, 100_000, 200_000, 400_000, 613_000])


def honest(n):
    return 0.08 + 2e-5 * n + 6e-11 * n**2


def noisy(rng, n):
    slow = 1 + (rng.random(len(n)) < 0.05) * rng.uniform(0.5, 2, len(n))  # 5 % slow outliers
    return honest(n) * np.exp(rng.normal(0, 0.12, len(n))) * slow


def curve(rng, repeats=5):
    n = np.repeat(LENGTHS, repeats)
    return fit([int(x) for x in n], list(noisy(rng, n)))


def test_an_honest_engine_is_never_flagged_and_a_one_page_prefill_always():
    rng = np.random.default_rng(7)
    for _ in range(60):
        fitted = curve(rng)
        assert not judge(fitted, 681_000, float(noisy(rng, np.array([681_000]))[0])).too_fast
        assert judge(fitted, 700_000, honest(64)).too_fast


def test_the_fit_recovers_noise_free_times():
    fitted = fit([int(n) for n in LENGTHS], [honest(n) for n in LENGTHS])
    assert fitted.expected(500_000) == pytest.approx(honest(500_000), rel=0.02)


def test_a_short_prompt_cannot_be_too_fast():
    fitted = curve(np.random.default_rng(1))
    speed = judge(fitted, 500, 0.0001)
    assert not speed.testable
    assert not speed.too_fast


def test_extrapolation_is_no_evidence():
    fitted = curve(np.random.default_rng(1))
    assert not judge(fitted, 900_000, 0.01).testable


@pytest.mark.parametrize(
    ("lengths", "times"),
    [
        ([1, 2, 3, 4], [1, 1, 1, 1]),
        ([1, 2, 3, 4, 5], [1, 1, 1, 1, 0]),
        ([0, 1, 2, 3, 4], [1] * 5),
        ([], []),
        ([1] * 9, [1] * 9),
    ],
)
def test_too_little_to_fit_is_refused(lengths, times):
    with pytest.raises(ValueError):
        fit(lengths, times)


def test_cusum_sees_two_sigma_within_a_few_runs_and_is_otherwise_silent():
    rng = np.random.default_rng(3)
    delays = [first_alarm(rng.normal(-2, 1, 60)) for _ in range(400)]
    assert None not in delays
    assert np.mean(delays) + 1 == pytest.approx(4, abs=0.5)
    assert first_alarm([0.0] * 10_000) is None


def test_cusum_mean_time_between_false_alarms():
    """About 930 points for k 0.5, h 5; far fewer would make the alarm worthless."""
    rng = np.random.default_rng(11)
    runs = [first_alarm(rng.normal(0, 1, 20_000)) or 20_000 for _ in range(200)]
    assert 750 < np.mean(runs) < 1150


def test_hits_that_are_faster_are_found_and_equal_arms_are_not():
    rng = np.random.default_rng(5)
    miss = rng.lognormal(0, 0.2, 100)
    hit = rng.lognormal(-0.5, 0.2, 100)
    found = faster(list(hit), list(miss))
    assert found.p < 5e-7
    assert found.median_gain > 0.05
    assert found.auc > 0.9
    silent = faster(list(rng.lognormal(0, 0.2, 100)), list(miss))
    assert silent.p > 1e-4
    assert differ(list(miss), list(miss)) == 1.0


def test_the_null_distribution_of_the_timing_test_is_not_liberal():
    """P(p < 0.01) under equal arms stays near 1 %; the level of 5e-7 follows from the same null."""
    rng = np.random.default_rng(17)
    small = sum(faster(list(rng.random(100)), list(rng.random(100))).p < 0.01 for _ in range(1_000))
    assert small < 25


def test_empty_arms_are_refused():
    with pytest.raises(ValueError):
        faster([], [1.0])
