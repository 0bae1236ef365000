"""Prefix caches, salts, tiers and response caches: counts, times, and both directions on the lab."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kvaudit.auditor.checks.prefix.contents import FRESH, HIT, TIER, Recalled
from kvaudit.auditor.checks.prefix.responses import Lots, Made, Twins
from kvaudit.auditor.checks.prefix.seen import Cached, PrefixSeen
from kvaudit.auditor.verdict import Verdict
from tests.auditor.checks.active import BUSY, DENIED, A, B, in_lab, judged, nothing_asked, seen_as

FAIL, PASS, OPEN, ERROR = Verdict.FAIL, Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.ERROR


def times(count: int, middle: float, spread: float = 0.05, seed: int = 1) -> list[float]:
    noise = random.Random(seed)
    return [middle * (1 + noise.uniform(-spread, spread)) for _ in range(count)]


def caches(counts: dict[str, list[int | None]] | None = None, **more: Any) -> PrefixSeen:
    """A's own prefix hits three times, B misses; no times taken."""
    found = {"own": [960, 960, 944], "cross": [0, 0, 0], **(counts or {})}
    seen = PrefixSeen((A, B), 16, tier_asked=True)
    for arm, values in found.items():
        seen.counts += [Cached(arm, repeat, value, 1_000) for repeat, value in enumerate(values)]
    seen.trials = [seen_as("own", 1_000) for _ in range(30)]
    for name, value in more.items():
        setattr(seen, name, value)
    return seen


def timed(hits: list[float], misses: list[float], own: list[float], **more: Any) -> PrefixSeen:
    return caches(hits=hits, misses=misses, own_hits=own, **more)


def recalled(missed: int, arm: str = HIT, asked: int = 27, fresh_missed: int = 0) -> list[Recalled]:
    """So many questions to stored texts, and ten to fresh ones."""
    return [Recalled(arm, 1_000, number >= missed) for number in range(asked)] + [
        Recalled(FRESH, 1_000, number >= fresh_missed) for number in range(10)
    ]


def twins(pairs: list[tuple[Made, Made]], fresh: list[Made] | None = None) -> list[Twins]:
    unlike = [Made(float(at), f"x{at}", 1_000.0 + at, frozenset({"x-cache: MISS"})) for at in range(4)]
    return [Twins("whole", unlike if fresh is None else fresh, pairs)]


OWN = Made(10.0, "a", 1_010.0, frozenset({"x-cache: MISS"}))
SAME_ID, OTHER = Made(20.0, "a", 1_020.0), Made(20.0, "b", 1_020.0)
OLD = Made(20.0, "", 1_010.0)
CALLED_HIT = Made(20.0, "b", 1_020.0, frozenset({"x-cache: HIT"}))
NUMBERED_ALIKE = [Made(float(at), "a", 1_000.0 + at) for at in range(4)]
SKEWED = [Made(float(at), "b", 1_000.0 + at + 9 * (at % 2)) for at in range(4)]
ALL_HITS = [Made(float(at), f"x{at}", 1_000.0 + at, frozenset({"x-cache: HIT"})) for at in range(4)]

FAST, SLOW = times(100, 0.02, seed=2), times(100, 0.1, seed=3)


@pytest.mark.parametrize(
    ("seen", "verdict", "warn", "said"),
    [
        (caches(), PASS, False, "hits the cache (3 of 3)"),
        (
            caches({"cross": [960, 0, 944]}),
            FAIL,
            False,
            "960 cached tokens of a prefix that only tenant tenant-a",
        ),
        (caches({"cross": [960, 16, 0]}), OPEN, True, "One cross-tenant request"),
        (caches({"cross": [16, 16, 16]}), PASS, False, ""),  # a shared first page is the template's
        (caches({"tier cross": [960, 960, 0]}), FAIL, False, "second tier"),
        (caches({"own": [0, 0, 0]}), OPEN, False, "did not hit either"),
        (caches({"own": [None] * 3, "cross": [None] * 3}), OPEN, False, "not reported"),
        (caches({"stolen salt": [960, 960, 960]}), PASS, True, "only if the gateway sets it"),
        (
            caches({"stolen salt": [960, 960, 960]}, entry_sets_salts=True),
            FAIL,
            False,
            "by sending tenant-a's salt",
        ),
        (caches({"stolen salt": [0, 0, 0]}, entry_sets_salts=True), PASS, False, ""),
        (caches(tier_asked=False), PASS, True, "were not filled"),
        (caches(lots=[Lots("", 3, 3, 0)]), FAIL, False, "byte-equal answers"),
        (caches(lots=[Lots("", 3, 2, 0)]), PASS, False, ""),
        (caches(lots=[Lots("", 2, 2, 0)]), PASS, False, ""),
        (caches(lots=[Lots("", 3, 3, 1)]), PASS, False, ""),  # deterministic engine
        (timed(times(100, 0.02), SLOW, FAST), FAIL, False, "answered faster"),
        (timed(times(100, 0.1), SLOW, FAST), PASS, False, "100 timed pairs"),
        (timed(times(100, 0.098, 0.001), times(100, 0.1, 0.001), FAST), PASS, False, ""),  # 2 % is no gain
        (timed(SLOW, [*times(50, 0.1), *times(50, 0.2)], FAST), ERROR, False, "drifted"),
        (
            timed(times(20, 0.02), SLOW[:20], FAST[:20]),
            PASS,
            False,
            "too few to say",
        ),  # too few to say anything
        (caches(recalled=recalled(0)), PASS, False, "27 questions to texts out of the cache"),
        (caches(recalled=recalled(1)), PASS, False, ""),
        (caches(recalled=recalled(2)), OPEN, True, "2 of 27 times, fresh ones 0 of 10"),
        (caches(recalled=recalled(27)), FAIL, False, "a hit does not hold what was stored"),
        (caches(recalled=recalled(9, TIER, 9)), FAIL, False, "second tier"),
        (caches(recalled=recalled(20, fresh_missed=7)), PASS, False, ""),  # a model that is weak at facts
        (caches(twins=twins([(OWN, OTHER)] * 3)), PASS, False, ""),
        (
            caches(twins=twins([(OWN, SAME_ID)] * 3)),
            FAIL,
            False,
            "3 of 3 prompts (whole, temperature 0; the same id)",
        ),
        (caches(twins=twins([(OWN, SAME_ID), (OWN, OTHER)])), PASS, False, ""),
        (caches(twins=twins([(OWN, SAME_ID)] * 3, NUMBERED_ALIKE)), PASS, False, ""),  # all ids are one
        (caches(twins=twins([(OWN, OLD)] * 3)), FAIL, False, "made before it was asked for"),
        (caches(twins=twins([(OWN, OLD)] * 3, SKEWED)), PASS, False, ""),  # replicas whose clocks differ
        (caches(twins=twins([(OWN, CALLED_HIT)] * 3)), FAIL, False, "x-cache: HIT"),
        (
            caches(twins=twins([(OWN, CALLED_HIT)] * 3, ALL_HITS)),
            PASS,
            False,
            "",
        ),  # never sent, and a "hit" too
        (caches(stopped="The budget is used up."), OPEN, False, "budget"),
        (caches(unhealthy="Silent."), FAIL, False, "no longer healthy"),
        (caches(trials=[seen_as("own", 9, BUSY)] * 4 + [seen_as("own", 9)] * 30), OPEN, False, "void"),
        (caches(trials=[seen_as("own", 9, DENIED, tenant=B)]), ERROR, False, "tenant-b (401)"),
        (caches({"cross": [960, 960, 0]}, stopped="The budget is used up."), FAIL, False, ""),
    ],
)
def test_verdicts(seen: PrefixSeen, verdict: Verdict, warn: bool, said: str) -> None:
    result = judged("prefix", seen)
    assert (result.verdict, result.warn) == (verdict, warn), result.summary
    assert said in result.summary
    assert result.does_not_prove


def test_times_alone_show_the_cache_where_no_count_does() -> None:
    """The control arm must detect, or silence across tenants means nothing."""
    hidden: dict[str, list[int | None]] = {"own": [None] * 3, "cross": [None] * 3}
    seen = caches(hidden, hits=times(100, 0.1), misses=SLOW, own_hits=FAST)
    assert judged("prefix", seen).verdict is PASS
    seen = caches(hidden, hits=times(100, 0.1), misses=SLOW, own_hits=times(100, 0.1, seed=9))
    assert judged("prefix", seen).verdict is OPEN
    seen = caches(hidden, hits=times(100, 0.02), misses=SLOW, own_hits=FAST)
    assert judged("prefix", seen).verdict is FAIL


def test_nobody_to_ask_as_is_no_pass() -> None:
    assert nothing_asked("prefix").verdict is OPEN


def test_one_tenant_is_not_enough() -> None:
    result, seen, _ = in_lab("prefix", meddle=lambda lab, prober: prober.wires.pop(B))
    assert result.verdict is OPEN
    assert seen.trials == []


# Against the lab


@pytest.mark.parametrize(
    ("fault", "options", "said"),
    [
        ("shared_prefix", {}, "crosses tenants"),
        ("salt_ignored", {}, "crosses tenants"),
        ("tier_salt_dropped", {"prefill_pool": 16_384}, "second tier"),
        ("gateway_cache", {"prefill_pool": 16_384}, "response cache"),
        ("none", {"prefix_cache": "shared"}, "crosses tenants"),
        ("hit_garbles", {"prefill_pool": 16_384}, "a hit does not hold what was stored"),
        ("response_cache", {"prefill_pool": 16_384}, "response cache"),
    ],
)
def test_sharing_is_found(fault: str, options: dict[str, Any], said: str) -> None:
    result, _, _ = in_lab("prefix", [fault], **options)
    assert result.verdict is FAIL, result.summary
    assert said in result.summary


def test_an_isolated_cache_passes_and_a_salt_that_is_sent_is_overwritten() -> None:
    result, seen, _ = in_lab("prefix", ["healthy"], target={"entry_sets_salts": True})
    assert result.verdict is PASS, result.summary
    arms = {one.arm for one in seen.counts}
    assert {"own", "cross", "salted own", "stolen salt", "tier own", "tier cross"} <= arms
    assert result.measures["timing"]["own_p"] < 1e-6 < result.measures["timing"]["p"]


def test_a_cache_that_is_off_cannot_be_judged() -> None:
    result, _, _ = in_lab("prefix", ["none"], prefix_cache="off")
    assert result.verdict is OPEN
    assert "did not hit either" in result.summary
