"""Planted markers: what decides, what a clean run may say, and both directions on the lab."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from kvaudit.auditor.checks.canary.probe import CanarySeen, Cell, Sighting, cells
from kvaudit.auditor.checks.canary.verdict import dirtying
from kvaudit.auditor.checks.prober_protocol import Limits
from kvaudit.auditor.prober import NetworkProber, Permission
from kvaudit.auditor.stats.bounds import leak_bound
from kvaudit.auditor.text.markers import as_measure, draw_marker, live, seeded
from kvaudit.auditor.verdict import Verdict
from tests.auditor.checks.active import (
    ANSWERED,
    BUSY,
    DENIED,
    FAILED,
    LIMITS,
    REFUSED,
    ROOMY,
    A,
    B,
    C,
    N,
    in_lab,
    judged,
    nothing_asked,
    seen_as,
)

FAIL, PASS, OPEN, ERROR = Verdict.FAIL, Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.ERROR
WORDS = ("amber", "falcon", "meadow", "velvet", "harbor", "cedar")


def rounds(count: int = 20, **changes: Any) -> CanarySeen:
    """Clean rounds: victim and longest answered, N and N+1 refused; every second request is B's."""
    seen = CanarySeen(LIMITS, (A, B), planned=count, surfaced=10, surfacing_trials=10, rounds_done=count)
    for number in range(count):
        for name, tokens, outcome in (
            ("victim", 5_162, ANSWERED),
            ("N", N, REFUSED),
            ("N+1", N + 1, REFUSED),
            ("control", 512, ANSWERED),
            ("longest", 5_162, ANSWERED),
        ):
            seen.trials.append(seen_as(name, tokens, outcome, repeat=number))
    seen.own_tokens, seen.served_tokens = 100_000, 120_000.0
    for name, value in changes.items():
        setattr(seen, name, value)
    return seen


def sighting(**changes: Any) -> Sighting:
    usual: dict[str, Any] = {
        "reader": B,
        "planted_by": A,
        "words": WORDS,
        "run": 6,
        "length": N,
        "cell": "N",
        "round": 3,
        "ordinals": (7, 9),
        "decoy": False,
        "suspicious": False,
    }
    return Sighting(**{**usual, **changes})


def voided(count: int, of: int = 20) -> CanarySeen:
    seen = rounds(of)
    for index in range(count):
        seen.trials[index] = seen_as("victim", 5_162, BUSY, repeat=index)
    return seen


def forgetful(count: int) -> CanarySeen:
    seen = rounds()
    answered = [at for at, one in enumerate(seen.trials) if one.outcome is ANSWERED]
    for at in answered[:count]:
        one = seen.trials[at]
        seen.trials[at] = seen_as(one.name, one.tokens, nonce=False, repeat=one.repeat)
    return seen


@pytest.mark.parametrize(
    ("seen", "verdict", "said"),
    [
        (rounds(), PASS, "95 % confidence"),
        (rounds(sightings=[sighting()]), FAIL, "tenant tenant-a appeared in tenant tenant-b's answer"),
        (rounds(sightings=[sighting(reader=A)]), FAIL, "earlier request of tenant tenant-a"),
        (rounds(sightings=[sighting(reader=A), sighting()]), FAIL, "appeared in tenant tenant-b's"),
        (rounds(sightings=[sighting()], repeats=5, repeat_hits=5), FAIL, "it happened 5 times (48% to 100%)"),
        (rounds(sightings=[sighting(earlier_run=True)]), FAIL, "planted in an earlier run"),
        (
            rounds(sightings=[sighting()], stopped="Stopped at the first verified hit."),
            FAIL,
            "about page 7, 9",
        ),
        (rounds(sightings=[sighting(decoy=True)]), ERROR, "never sent to anybody"),
        (rounds(sightings=[sighting(decoy=True), sighting()]), FAIL, "tenant-a"),
        (rounds(sightings=[sighting(run=3, suspicious=True)]), OPEN, "runs of three"),
        (rounds(19), OPEN, "a pass needs 20"),
        (rounds(0), OPEN, "0 rounds"),
        (rounds(stopped="The budget is used up."), OPEN, "budget"),
        (rounds(withheld=True), OPEN, "consent"),
        (rounds(unhealthy="A node does not answer."), FAIL, "no longer healthy"),
        (rounds(surfaced=4), OPEN, "4 of 10"),
        (rounds(surfaced=0, surfacing_trials=0), OPEN, "0 of 0"),
        (rounds(served_tokens=None), OPEN, "counters do not say"),
        (rounds(served_tokens=900_000.0), OPEN, "only 11%"),
        (voided(10), OPEN, "not a pass"),
        (voided(11), OPEN, "void"),
        (forgetful(2), PASS, ""),
        (forgetful(9), OPEN, "without their own nonce"),
        (rounds(trials=[seen_as("victim", 5_162, DENIED, tenant=B)]), ERROR, "tenant-b (401)"),
        (rounds(left_out={"N": "failed"}), PASS, "failed instead of refusing: N"),
    ],
)
def test_verdicts(seen: CanarySeen, verdict: Verdict, said: str) -> None:
    result = judged("canary", seen)
    assert result.verdict is verdict, result.summary
    assert said in result.summary
    assert result.next
    assert result.does_not_prove


def test_a_void_trial_of_the_longest_length_takes_its_round_away() -> None:
    """Voided victims leave the rounds whole; a voided longest request does not count as clean."""
    seen = rounds(25)
    for at, one in enumerate(seen.trials):
        if one.name == "longest" and one.repeat < 6:
            seen.trials[at] = seen_as("longest", one.tokens, FAILED, repeat=one.repeat)
    result = judged("canary", seen)
    assert result.measures["accepted_rounds"] == 19
    assert result.verdict is OPEN
    assert "too few rounds" in result.summary


def test_refusals_are_counted_as_refusals_and_the_bound_is_over_rounds() -> None:
    seen = rounds(20)
    seen.trials.append(seen_as("N", N))
    measures = judged("canary", seen).measures
    assert (measures["accepted"], measures["refused"], measures["accepted_above_limit"]) == (60, 40, 1)
    assert measures["bound"] == pytest.approx(leak_bound(20, 1.0, 100 / 120), abs=1e-4)
    assert measures["dirtying"] == pytest.approx(0.833)


def test_a_decoy_met_twice_over_by_three_words_is_an_error_as_well() -> None:
    assert judged("canary", rounds(sightings=[sighting(decoy=True, run=3, suspicious=True)])).verdict is ERROR


@pytest.mark.parametrize(
    ("own", "served", "share"), [(0, 10.0, None), (10, None, None), (10, 5.0, 1.0), (10, 40.0, 0.25)]
)
def test_dirtying(own: int, served: float | None, share: float | None) -> None:
    assert dirtying(CanarySeen(LIMITS, own_tokens=own, served_tokens=served)) == share


def test_the_longest_accepted_length_comes_last_and_what_needs_consent_is_left_out() -> None:
    """An accepted request overwrites the pages that the others would read."""
    assert [cell.name for cell in cells(LIMITS, True)] == [
        "victim",
        "N",
        "N+1",
        "midpoint",
        "control",
        "longest",
    ]
    assert [cell.name for cell in cells(LIMITS, False)] == ["victim", "control", "longest"]
    assert cells(LIMITS, True)[-1] == Cell("longest", N - 128 - 32)
    assert [cell.name for cell in cells(ROOMY, False)][1:3] == ["N", "N+1"]  # the pool holds the context
    assert cells(Limits(None, C, None), True) == ()


def test_ceilings_cut_the_rounds_before_the_run() -> None:
    from kvaudit.auditor.checks.canary.probe import CanaryProbe

    _, seen, prober = in_lab("canary", permission=Permission(consent=True, seed=3, prompt_tokens=60_000))
    assert seen.planned < 20
    assert seen.rounds_done <= seen.planned
    plan = CanaryProbe().plan(prober)
    assert plan.rounds == seen.planned


def test_markers_are_kept_for_the_next_runs() -> None:
    seen = rounds()
    seen.planted = [draw_marker(seeded(1), tenant=A, request="1")]
    seen.decoys = [draw_marker(seeded(2), decoy=True)]
    measures = judged("canary", seen).measures
    assert measures["live_days"] == 30
    assert live(measures["live_markers"]) == (*seen.planted, *seen.decoys)
    assert live([{"words": "too short"}, {}, as_measure(seen.decoys[0])]) == (seen.decoys[0],)


def test_one_tenant_is_not_enough() -> None:
    result, seen, _ = in_lab("canary", meddle=lambda lab, prober: prober.wires.pop(B))
    assert result.verdict is OPEN
    assert "second tenant" in result.summary
    assert seen.trials == []


def test_nobody_to_ask_as_is_no_pass() -> None:
    assert nothing_asked("canary").verdict is OPEN


# Against the lab: few rounds, so that a clean run is quick


FEW = Permission(consent=True, seed=5, prompt_tokens=340_000)


@pytest.mark.parametrize(
    ("fault", "options", "verdict"),
    [
        ("none", {}, PASS),
        ("fixed_0_5_21", {}, PASS),
        ("sse_error_in_200", {}, PASS),
        ("stale_pages", {}, FAIL),
        ("stale_pages", {"order": "fifo"}, FAIL),
        ("snapshot_restore", {"prefill_pool": 16_384}, FAIL),
        ("short_transfer", {"prefill_pool": 16_384}, OPEN),
        ("wedge_at_limit", {}, FAIL),
        ("zero_gauges", {}, OPEN),
    ],
)
def test_engines(fault: str, options: dict[str, Any], verdict: Verdict) -> None:
    result, _, _ = in_lab("canary", [fault], permission=FEW, **options)
    assert result.verdict is verdict, result.summary
    if verdict is PASS:
        assert result.measures["accepted_rounds"] >= 20
        assert result.measures["surfacing"] >= 0.5


def test_each_tenant_is_victim_and_attacker_at_every_length() -> None:
    _, seen, _ = in_lab("canary", ["none"], permission=FEW)
    asked = [one for one in seen.trials if one.name != "surfacing"]
    for number in (0, 1):
        turns = [one.tenant for one in asked if one.repeat == number]
        assert turns[:2] in ([A, B], [B, A])
        assert all(one != other for one, other in pairwise(turns))
    for name in ("victim", "N", "N+1", "midpoint", "control", "longest"):
        assert {one.tenant for one in asked if one.name == name and one.repeat < 2} == {A, B}


def test_the_first_verified_hit_stops_all_but_five_repeats() -> None:
    result, seen, _ = in_lab("canary", ["stale_pages"], permission=FEW)
    assert seen.rounds_done == 0
    assert result.measures["repeats_after_hit"] == 5
    assert any(hit["kind"] == "cross-tenant" for hit in result.measures["hits"])


def test_without_consent_the_boundary_is_left_out_and_nothing_passes() -> None:
    permission = Permission(consent=False, seed=5, prompt_tokens=340_000)
    result, seen, _ = in_lab("canary", ["stale_pages"], permission=permission)
    assert max(one.tokens for one in seen.trials) < N - 8
    assert result.verdict is OPEN
    assert "consent" in result.summary


def test_a_marker_of_an_earlier_run_is_a_hit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was planted last night may surface tonight."""
    last = draw_marker(seeded(99), tenant=A, request="31")
    original = NetworkProber.ask

    async def surfacing(self: NetworkProber, tenant: str, prompt: Any, **more: Any) -> Any:
        reply = await original(self, tenant, prompt, **more)
        return replace(reply, text=f"{reply.text} {last}") if tenant == B else reply

    monkeypatch.setattr(NetworkProber, "ask", surfacing)
    result, _, _ = in_lab("canary", permission=Permission(consent=True, seed=5, earlier=(last,)))
    assert result.verdict is FAIL
    assert result.measures["hits"][0]["planted_in_an_earlier_run"] is True
    assert result.measures["earlier_markers"] == 1


def test_a_hit_names_its_pages_or_says_why_it_cannot() -> None:
    result, _, _ = in_lab("canary", ["stale_pages"], permission=FEW)
    assert result.verdict is FAIL, "it never leaked: this test shows nothing"
    for hit in result.measures["hits"]:
        assert bool(hit["page_ordinals"]) != bool(hit["page_ordinals_unknown"])
