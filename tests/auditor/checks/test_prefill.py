"""Prefill times: what is too fast, what can be judged, and the chart across runs."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kvaudit.auditor.checks.contract import History
from kvaudit.auditor.checks.misses import Miss, Misses
from kvaudit.auditor.checks.misses_by_way import MissesByWay
from kvaudit.auditor.checks.prefill.probe import PrefillSeen, fit_lengths, judged_lengths
from kvaudit.auditor.checks.prefill.verdict import drifted, residual
from kvaudit.auditor.checks.prober_protocol import Limits
from kvaudit.auditor.checks.trials import Trial
from kvaudit.auditor.prober import Permission
from kvaudit.auditor.verdict import Verdict
from tests.auditor.checks.active import (
    BUSY,
    DENIED,
    LIMITS,
    REFUSED,
    C,
    N,
    in_lab,
    judged,
    nothing_asked,
    seen_as,
)

FAIL, PASS, OPEN, ERROR = Verdict.FAIL, Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.ERROR


def takes(tokens: int, noise: random.Random, a: float = 5e-3, spread: float = 0.05) -> float:
    return (a + 4e-6 * tokens + 1e-9 * tokens**2) * (1 + noise.uniform(-spread, spread))


def measured(a: float = 5e-3, spread: float = 0.05, **changes: Any) -> PrefillSeen:
    """A clean run: eight lengths five times, the longest three times, N refused."""
    noise = random.Random(4)
    seen = PrefillSeen(LIMITS)
    for tokens in fit_lengths(N):
        seen.fitted += [seen_as("fit", tokens, first_token=takes(tokens, noise, a, spread)) for _ in range(5)]
    seen.judged = [seen_as("longest", 5_162, first_token=takes(5_162, noise, a, spread)) for _ in range(3)]
    seen.judged += [seen_as("N", N, REFUSED), seen_as("N+1", N + 1, REFUSED)]
    for name, value in changes.items():
        setattr(seen, name, value)
    return seen


def at(name: str, tokens: int, seconds: float, **more: Any) -> Trial:
    return seen_as(name, tokens, first_token=seconds, **more)


ABOVE = MissesByWay({"": Misses(found=[Miss(at("N", N, 0.053, nonce=False), above=True)])})
SLOW = [at("longest", 5_162, 0.052)] * 3


@pytest.mark.parametrize(
    ("seen", "verdict", "warn", "said"),
    [
        (measured(), PASS, False, "as long as 40 shorter ones foretell"),
        (measured(judged=[*SLOW, at("N", N, 0.006, nonce=False)]), FAIL, False, "not read"),
        (measured(judged=[*SLOW, at("N", N, 0.006)]), OPEN, True, "nonce and all"),
        (
            measured(judged=[*SLOW, at("N", N, 0.053, nonce=False)], misses=ABOVE),
            OPEN,
            True,
            "is to be refused",
        ),
        (measured(judged=[at("longest", 5_162, 0.006, nonce=False)] * 3), FAIL, False, "5,162"),
        (
            measured(judged=[at("longest", 5_162, 0.006, cached_tokens=5_000)] * 3),
            OPEN,
            False,
            "would not show",
        ),
        (measured(judged=[]), OPEN, False, "Not measured to the end"),
        (measured(judged=[seen_as("longest", 5_162, BUSY)] * 3), OPEN, False, "Not measured"),
        (measured(fitted=[]), OPEN, False, "Only 0 timed answers"),
        (measured(a=2.0), OPEN, False, "constant part"),
        (measured(spread=0.95), OPEN, False, "scatter too much"),
        (measured(withheld=True), OPEN, False, "consent"),
        (measured(stopped="The budget is used up."), OPEN, False, "budget"),
        (measured(unhealthy="Silent."), FAIL, False, "no longer healthy"),
        (measured(fitted=[], judged=[], unhealthy="Silent."), FAIL, False, "no longer healthy"),
        (measured(judged=[seen_as("longest", 5_162, DENIED)]), ERROR, False, "401"),
        (measured(judged=[*SLOW, *[seen_as("longest", 5_162, BUSY)] * 6]), OPEN, False, "6 void"),
    ],
)
def test_verdicts(seen: PrefillSeen, verdict: Verdict, warn: bool, said: str) -> None:
    result = judged("prefill", seen)
    assert (result.verdict, result.warn) == (verdict, warn), result.summary
    assert said in result.summary
    assert "fails only where rejection does" in result.does_not_prove


def test_lengths() -> None:
    chosen = fit_lengths(N)
    assert len(chosen) == 8
    assert (chosen[0], chosen[-1]) == (256, round(0.9 * N))
    assert [name for name, _ in judged_lengths(LIMITS, True)] == ["longest", "N", "N+1", "midpoint"]
    assert [name for name, _ in judged_lengths(LIMITS, False)] == ["longest"]
    assert judged_lengths(Limits(None, C, None), True) == ()


def test_the_point_of_a_run_says_by_how_much_long_prompts_differ() -> None:
    clean = measured(spread=0.0).fitted
    assert residual(clean) == pytest.approx(0.0, abs=0.05)
    top = sorted({one.tokens for one in clean})[-2:]
    quick = [
        at("fit", one.tokens, (one.first_token or 0) * (0.5 if one.tokens in top else 1)) for one in clean
    ]
    assert residual(quick) == pytest.approx(-0.69, abs=0.1)
    assert residual(clean[:20]) is None


def test_a_chart_needs_ten_runs_and_sees_a_shift() -> None:
    noise = random.Random(1)
    steady = [noise.gauss(0, 0.05) for _ in range(30)]
    assert drifted(steady[:9], -5.0) is None
    assert drifted(steady[:10], None) is None
    assert drifted(steady[:29], steady[29]) is False
    assert drifted([*steady[:20], -0.2, -0.2, -0.2], -0.2) is True
    assert drifted([*steady[:20], 0.2, 0.2, 0.2], 0.2) is False  # slower is no alarm


def test_an_alarm_is_a_warning() -> None:
    earlier = (0.4, 0.41, 0.39, 0.4, 0.42, 0.4, 0.38, 0.4, 0.4, 0.4, 0.1, 0.05)
    result = judged("prefill", measured(earlier=earlier))
    assert (result.verdict, result.warn) == (PASS, True)
    assert "become faster" in result.summary
    assert result.measures["drifted"] is True


def test_nobody_to_ask_as_is_no_pass() -> None:
    assert nothing_asked("prefill").verdict is OPEN


# Against the lab


@pytest.mark.parametrize(
    ("fault", "verdict", "severity"),
    [
        ("none", PASS, ""),
        ("stale_pages", FAIL, "critical"),
        ("fixed_0_5_20", PASS, ""),
        ("reject_500", PASS, ""),
        ("wedge_at_limit", FAIL, "high"),
    ],
)
def test_engines(fault: str, verdict: Verdict, severity: str) -> None:
    history = History(prefill_residuals=(0.05,) * 12)
    result, seen, _ = in_lab("prefill", [fault], history=history)
    assert (result.verdict, result.severity) == (verdict, severity), result.summary
    assert len({one.tokens for one in seen.fitted}) >= 7
    if verdict is PASS:
        assert abs(result.measures["median_residual"]) < 0.3
        assert result.measures["drifted"] is False


def test_without_consent_only_accepted_lengths_are_timed() -> None:
    result, seen, _ = in_lab("prefill", ["stale_pages"], permission=Permission(consent=False, seed=1))
    assert max(one.tokens for one in seen.judged) < N - 8
    assert result.verdict is OPEN
