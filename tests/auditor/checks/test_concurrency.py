"""Races under load: the judge's tables, the load's shape, and the lab's faults on the virtual clock."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from kvaudit.auditor import engines
from kvaudit.auditor.checks.concurrency.arms import pool_share, question
from kvaudit.auditor.checks.concurrency.load import (
    ABORTING,
    ARMS,
    CONTROLS,
    LEAST_REQUESTS,
    REQUESTS,
    UNEQUAL,
    jobs_for,
    lengths_for,
    shuffled,
    volleys_for,
    workers_for,
)
from kvaudit.auditor.checks.concurrency.probe import ConcurrencyProbe
from kvaudit.auditor.checks.concurrency.seen import ConcurrencySeen, Sighting, Use, Visit
from kvaudit.auditor.checks.concurrency.verdict import judge_concurrency, nonce_loss, visit_loss
from kvaudit.auditor.checks.contract import Audit, Rules
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome, Plan
from kvaudit.auditor.checks.trials import Trial
from kvaudit.auditor.engines import fetch
from kvaudit.auditor.prober import NetworkProber
from kvaudit.auditor.prober.setup import limits_of
from kvaudit.auditor.prober.spending import TokenUsage
from kvaudit.auditor.text.markers import draw_marker, seeded
from kvaudit.auditor.text.prompts import draw_nonce
from kvaudit.auditor.verdict import Result, Verdict
from kvaudit.lab.clock import run_virtual
from kvaudit.lab.config import LabConfig
from kvaudit.lab.inprocess import in_process

# -- the lab -----------------------------------------------------------------------------------------


def audited(
    *faults: str,
    seed: int = 1,
    ceiling: int | None = None,
    tenants: int = 2,
    dumb: bool = False,
    **config: Any,
) -> tuple[Result, NetworkProber, Plan]:
    """One run against the lab in memory, on simulated time."""

    async def run() -> tuple[Result, NetworkProber, Plan]:
        async with in_process(LabConfig(seed=seed, **config), faults) as lab:
            adapter = engines.get(lab.deployment.config.flavour)
            allow = fetch.allowed([adapter])
            nodes = [lab.client(url, allow=allow) for url in lab.node_urls]
            found = [(await fetch.read_node(node, (adapter,), declared=True)).facts for node in nodes]
            facts = [each for each in found if each is not None]
            given = lab.described()["tenants"][:tenants]
            prober = NetworkProber(
                {each["name"]: lab.client(lab.entry, allow=allow, key=each["key"]) for each in given},
                adapter.dialect(),
                lab.deployment.config.model,
                limits_of(facts, Rules()),
                facts,
                [] if dumb else nodes,
                draw=seeded(seed * 7 + 1),
                spent=TokenUsage(ceiling=ceiling),
            )
            await prober.calibrate()
            prober.spent.begin()
            before = prober.spent.prompt_tokens, prober.spent.requests
            plan = ConcurrencyProbe().plan(prober)
            audit = Audit("lab", [], prober=prober)
            seen = await ConcurrencyProbe().observe(audit)
            prober.spent.prompt_tokens -= before[0]
            prober.spent.requests -= before[1]
            return ConcurrencyProbe().judge(seen, audit), prober, plan

    return run_virtual(run())


@pytest.mark.parametrize("fault", ["mixed_len", "crossed", "snapshot_restore", "lease_expiry", "late_writer"])
def test_fault_is_found(fault: str) -> None:
    result, _, _ = audited(fault, seed=3)
    assert (result.verdict, result.severity) == (Verdict.FAIL, "critical"), result.summary
    assert result.measures["hits"]
    assert "marker words in a row" in result.summary


def test_clean_pair_passes_at_the_planned_cost() -> None:
    """Also: nothing at N - 8 or above was ever sent, and the plan foretells what it costs."""
    result, prober, plan = audited("healthy", seed=5)
    assert result.verdict is Verdict.PASS, result.summary
    measures = result.measures
    assert measures["planned"] == REQUESTS
    assert measures["valid_under_load"] >= 300
    assert measures["bound"] < 0.01
    assert all(arm["pool_peak"] >= 0.8 for arm in measures["arms"] if arm["arm"] in UNEQUAL)
    assert [visit["after"] for visit in measures["visits"]] == [[3, 3]] * 3
    assert measures["cancelled"] >= 0.25 * measures["cancelled_planned"] > 0
    assert measures["retried"] > 0
    assert plan.prompt_tokens == pytest.approx(prober.spent.prompt_tokens, rel=0.15)
    assert plan.requests == pytest.approx(prober.spent.requests, rel=0.1)


def test_ceiling_cuts_the_number_of_requests() -> None:
    """With few requests the same fault may be missed, and a clean run is no pass."""
    result, prober, _ = audited("healthy", ceiling=250_000)
    assert result.measures["planned"] < LEAST_REQUESTS
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "token ceiling" in result.summary
    assert prober.spent.prompt_tokens < 250_000


def test_pool_use_that_cannot_be_read_never_passes() -> None:
    result, _, _ = audited("healthy", ceiling=900_000, dumb=True)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "could not be read" in result.summary


def test_one_tenant_is_not_asked() -> None:
    result, _, _ = audited("crossed", tenants=1)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "second tenant" in result.summary


# -- the load ----------------------------------------------------------------------------------------

LIMITS = Limits(32_762, 32_768, 200_000, 64, True)


def test_mixture() -> None:
    lengths = lengths_for(LIMITS)
    assert lengths is not None
    jobs = jobs_for("mixed", 10_000, lengths, random.Random(4).randrange)
    shares = Counter(job.kind for job in jobs)
    for kind, share in (("short", 0.4), ("mid", 0.3), ("long", 0.1), ("neutral", 0.2)):
        assert shares[kind] / 10_000 == pytest.approx(share, abs=0.02)
    assert not any(job.abort for job in jobs)
    assert 0.45 < sum(job.tenant for job in jobs) / 10_000 < 0.55
    assert sum(job.tokens for job in jobs) / 10_000 == pytest.approx(lengths.mean, rel=0.03)


def test_aborts() -> None:
    lengths = lengths_for(LIMITS)
    assert lengths is not None
    for arm in ABORTING:
        draw = random.Random(4).randrange
        jobs, volleys = jobs_for(arm, 6_000, lengths, draw), volleys_for(arm, 6_000, lengths, draw)
        assert len(jobs) + 6 * len(volleys) == 6_000
        cut = [job for job in jobs if job.abort is not None]
        assert len(cut) / len(jobs) == pytest.approx(0.2, abs=0.02)
        assert all(0 < (job.abort or 0) <= 1.2 for job in cut)
        assert sum(job.retry for job in cut) / len(cut) == pytest.approx(0.5, abs=0.05)
        assert all(volley.victim.tenant != volley.followers[0].tenant for volley in volleys)
        assert all(volley.victim.kind == "long" and volley.victim.abort for volley in volleys)


@pytest.mark.parametrize("limit", [1_100, 2_042, 5_322, 8_186, 32_762, 681_274, 1_048_570])
def test_lengths_stay_below_consent(limit: int) -> None:
    lengths = lengths_for(Limits(limit, limit + 6, limit + 6, 64, True))
    assert lengths is not None
    for span in (lengths.short, lengths.mid, lengths.long, lengths.neutral):
        assert 0 < span.low <= span.high < limit - 8
    assert lengths.long.low > lengths.short.high


@pytest.mark.parametrize("limits", [Limits(None, 8192, 8192), Limits(600, 606, 606, 16)])
def test_limits_that_give_no_lengths(limits: Limits) -> None:
    assert lengths_for(limits) is None


@pytest.mark.parametrize(("pool", "workers"), [(None, 16), (20_000, 16), (200_000, 37), (10_000_000, 64)])
def test_workers_fill_the_pool(pool: int | None, workers: int) -> None:
    lengths = lengths_for(LIMITS)
    assert lengths is not None
    assert abs(workers_for(replace(LIMITS, pool=pool), lengths) - workers) <= 4


def test_arms_are_shuffled() -> None:
    orders = {tuple(shuffled(ARMS, random.Random(seed).randrange)) for seed in range(40)}
    assert len(orders) > 20
    assert all(sorted(order) == sorted(ARMS) for order in orders)


def test_question_leads_from_the_nonce_to_the_marker() -> None:
    draw = seeded(1)
    marker = draw_marker(draw)
    nonce = draw_nonce(draw, without=marker.words)
    asked = question(nonce, marker).text
    assert asked.endswith("Code Q:")
    assert asked.count(str(marker)) == 2
    # What a copier goes on with holds both: a swapped answer names the other request.
    assert asked.split("Code Q:")[2].startswith(f" {nonce.word}. The audit phrase is: {marker}")


@pytest.mark.parametrize(
    ("counters", "share"),
    [({}, None), ({"pool_used/0": 5000.0}, None), ({"pool_share/0": 0.2, "pool_share/1": 0.9}, 0.9)],
)
def test_pool_share(counters: dict[str, float], share: float | None) -> None:
    assert pool_share(counters) == share


# -- the judge ---------------------------------------------------------------------------------------


def trials(
    arm: str, answered: int, lost: int = 0, cancelled: int = 0, busy: int = 0, empty: int = 0
) -> list[Trial]:
    made = [Trial(arm, 500, "a", Outcome.ANSWERED, nonce=number >= lost) for number in range(answered)]
    made += [Trial(arm, 500, "a", Outcome.CANCELLED) for _ in range(cancelled)]
    made += [Trial(arm, 500, "a", Outcome.EMPTY, nonce=False) for _ in range(empty)]
    return made + [Trial(arm, 500, "a", Outcome.BUSY) for _ in range(busy)]


def seen(**change: Any) -> ConcurrencySeen:
    lost, busy = change.pop("lost", {}), change.pop("busy", 0)
    empty, answered = change.pop("empty", {}), change.pop("answered", {})
    base = ConcurrencySeen(
        Limits(8186, 8192, 10_000, 16, True),
        ("a", "b"),
        planned=600,
        workers=16,
        trials=[
            one
            for arm in ARMS
            for one in trials(
                arm,
                answered.get(arm, 120),
                lost.get(arm, 0),
                20 if arm in ABORTING else 0,
                busy,
                empty.get(arm, 0),
            )
        ],
        use={arm: Use([0.3, 0.95], 2) for arm in ARMS},
        own_markers=580,
        own_asked=600,
        aborts_planned=60,
        loop_looks=100,
        visits=[Visit(number, (3, 3), (3, 3), (3, 3), 12_000) for number in range(3)],
        visits_planned=3,
    )
    return replace(base, **change)


def sighting(**change: Any) -> Sighting:
    base = Sighting("a", "b", ("oak", "ash", "elm", "fir"), 4, 500, 4000, "mixed", False, False)
    return replace(base, **change)


@pytest.mark.parametrize(
    ("change", "verdict", "severity", "said"),
    [
        ({}, Verdict.PASS, "", "no answer held another request's marker"),
        ({"sightings": [sighting()]}, Verdict.FAIL, "critical", "Text of tenant b appeared in tenant a's"),
        ({"sightings": [sighting()], "busy": 100}, Verdict.FAIL, "critical", "Text of tenant b"),
        ({"sightings": [sighting(planted_by="a")]}, Verdict.FAIL, "critical", "another request of tenant a"),
        ({"sightings": [sighting(decoy=True)]}, Verdict.ERROR, "", "never sent to anybody"),
        ({"sightings": [sighting(suspicious=True, run=3)]}, Verdict.INCONCLUSIVE, "", "three marker words"),
        ({"lost": {"mixed": 12, "aborts": 8}}, Verdict.FAIL, "high", "20 of 360 answers"),
        ({"lost": {"mixed": 12, "aborts": 8, "equal": 8}}, Verdict.PASS, "", ""),
        ({"lost": {"sequential": 60}}, Verdict.INCONCLUSIVE, "", "180 of 240 answers of the control"),
        # an empty answer holds nobody's words, and has a control of its own
        (
            {"empty": {"mixed": 25}},
            Verdict.FAIL,
            "medium",
            "25 of 385 answers were HTTP 200 without text, against 0",
        ),
        (
            {"empty": dict.fromkeys(ARMS, 25)},
            Verdict.INCONCLUSIVE,
            "",
            "125 answers were HTTP 200 without text",
        ),
        ({"empty": {"mixed": 1}}, Verdict.INCONCLUSIVE, "", "1 answers were HTTP 200 without text"),
        # nothing ran under load, or nothing of it could be judged
        (
            {"answered": dict.fromkeys(UNEQUAL, 0)},
            Verdict.INCONCLUSIVE,
            "",
            "only 0 of the answers of the arm mixed",
        ),
        ({"answered": {"aborts": 11}}, Verdict.INCONCLUSIVE, "", "only 11 of the answers of the arm aborts"),
        (
            {"answered": dict.fromkeys(UNEQUAL, 14), "own_markers": 350},
            Verdict.INCONCLUSIVE,
            "",
            "could have been missed",
        ),
        ({"answered": dict.fromkeys(UNEQUAL, 20)}, Verdict.PASS, "", "Fewer than 5.0% of requests"),
        ({"own_markers": 0, "own_asked": 0}, Verdict.INCONCLUSIVE, "", "0 of 0 answers named"),
        (
            {"visits": [Visit(number, (3, 3), (0, 0), (3, 3), 12_000) for number in range(3)]},
            Verdict.INCONCLUSIVE,
            "",
            "answered 0 questions for facts, and 9",
        ),
        ({"planned": 80}, Verdict.INCONCLUSIVE, "", "token ceiling"),
        ({"busy": 20}, Verdict.INCONCLUSIVE, "", "void"),
        ({"own_markers": 200}, Verdict.INCONCLUSIVE, "", "200 of 600 answers named"),
        ({"aborts_planned": 200}, Verdict.INCONCLUSIVE, "", "40 of 200 requests were cut off"),
        ({"use": {}}, Verdict.INCONCLUSIVE, "", "could not be read in the arm mixed"),
        ({"use": {arm: Use([0.7], 1) for arm in ARMS}}, Verdict.INCONCLUSIVE, "", "at most 70% full"),
        ({"stopped": "The window closed."}, Verdict.INCONCLUSIVE, "", "The window closed."),
        ({"visits": []}, Verdict.INCONCLUSIVE, "", "0 of 3 return visits"),
        ({"no_visit": "the pool is unknown"}, Verdict.INCONCLUSIVE, "", "the pool is unknown"),
        ({"loop_late": 30}, Verdict.ERROR, "", "30 of 100 of its own timers"),
        (
            {"visits": [Visit(number, (3, 3), (0, 3), (3, 3), 12_000) for number in range(3)]},
            Verdict.FAIL,
            "high",
            "found only 0 of 9 of its own facts",
        ),
        (
            {"visits": [Visit(number, (3, 3), (2, 3), (3, 3), 12_000) for number in range(3)]},
            Verdict.INCONCLUSIVE,
            "",
            "6 of 9 of their facts",
        ),
        (
            {"visits": [Visit(number, (0, 3), (0, 3), (1, 3), 12_000) for number in range(3)]},
            Verdict.INCONCLUSIVE,
            "",
            "3 of 18 of their facts",
        ),
        (
            {"visits": [Visit(number, (3, 3), (3, 3), (3, 3), 9_000) for number in range(3)]},
            Verdict.INCONCLUSIVE,
            "",
            "past 100 %",
        ),
    ],
)
def test_judge(change: dict[str, Any], verdict: Verdict, severity: str, said: str) -> None:
    result = judge_concurrency(seen(**change))
    assert (result.verdict, result.severity) == (verdict, severity), result.summary
    assert said in result.summary
    assert result.does_not_prove
    assert result.next


def test_a_refused_key_is_an_error() -> None:
    found = seen()
    found.trials.append(Trial("mixed", 500, "b", Outcome.DENIED, status=401))
    assert judge_concurrency(found).verdict is Verdict.ERROR


def test_answers_that_nobody_could_judge_are_no_pass() -> None:
    found = seen()
    found.trials = [replace(one, nonce=None) if one.name in UNEQUAL else one for one in found.trials]
    assert judge_concurrency(found).verdict is Verdict.INCONCLUSIVE
    found.trials = [replace(one, nonce=None) for one in found.trials]
    assert judge_concurrency(replace(found, own_asked=0, own_markers=0)).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        ({"lost": {"mixed": 12, "aborts": 8}}, "high"),
        ({"empty": {"mixed": 25}}, "medium"),
        ({"visits": [Visit(number, (3, 3), (0, 3), (3, 3), 12_000) for number in range(3)]}, "high"),
    ],
)
def test_what_was_seen_stands_when_a_key_is_refused_afterwards(change: dict[str, Any], severity: str) -> None:
    found = seen(**change)
    found.trials.append(Trial("mixed", 500, "b", Outcome.DENIED, status=401))
    result = judge_concurrency(found)
    assert (result.verdict, result.severity) == (Verdict.FAIL, severity)


def test_bound_counts_answers_of_the_unequal_arms() -> None:
    """What a later layer pools over runs of one fingerprint stands in the measures."""
    measures = judge_concurrency(seen()).measures
    assert (measures["hits_under_load"], measures["valid_under_load"]) == (0, 360)
    assert measures["bound"] == pytest.approx((1 - 0.05 ** (1 / 360)) / (580 / 600), rel=1e-3)


def test_fisher_pools_three_arms_against_two() -> None:
    """The level is .001: eleven lost of 360 beside none of 240 is not enough, eighteen is."""
    assert nonce_loss(seen(lost={"mixed": 6, "aborts": 5})) > 0.001
    assert nonce_loss(seen(lost={"mixed": 6, "aborts": 6, "shared prefix": 6})) < 0.001
    assert nonce_loss(seen(lost=dict.fromkeys(CONTROLS, 30))) == pytest.approx(1.0)


def test_visits_need_six_of_nine_lost() -> None:
    def lost(*after: int) -> float:
        return visit_loss(seen(visits=[Visit(0, (3, 3), (each, 3), (3, 3), 12_000) for each in after]))[1]

    assert lost(1, 1, 1) < 0.001 < lost(2, 1, 1)
