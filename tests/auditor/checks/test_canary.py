"""Planted markers: what decides, what a clean run may say, and both directions on the lab."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from kvaudit.auditor.checks.canary.asking import CONTROL, Cell, pages_of
from kvaudit.auditor.checks.canary.breaking_off import why_no_more
from kvaudit.auditor.checks.canary.design import NONCE, PHRASE, WINDOW
from kvaudit.auditor.checks.canary.dirtying import Record
from kvaudit.auditor.checks.canary.evidence import dirtying, effective_trials
from kvaudit.auditor.checks.canary.follow_up import Ways, follow_up, misses_of
from kvaudit.auditor.checks.canary.follow_up import note as count
from kvaudit.auditor.checks.canary.lengths import answered, failing
from kvaudit.auditor.checks.canary.probe import CanaryProbe
from kvaudit.auditor.checks.canary.seen import Asked, CanarySeen, Sighting
from kvaudit.auditor.checks.canary.sender import cells, keeps_failing
from kvaudit.auditor.checks.canary.strata import SHARES
from kvaudit.auditor.checks.misses import Miss, Misses, MissKind
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome
from kvaudit.auditor.checks.serving import Role, Serving
from kvaudit.auditor.checks.trials import Trial
from kvaudit.auditor.engines.completion import Mode
from kvaudit.auditor.prober import NetworkProber, Permission, run_wide
from kvaudit.auditor.stats.bounds import effective_bound, lower_bound
from kvaudit.auditor.text.markers import as_measure, draw_marker, live, seeded
from kvaudit.auditor.text.spelling import Prompt
from kvaudit.auditor.verdict import Verdict
from tests.auditor.checks.active import (
    ANSWERED,
    BUSY,
    DENIED,
    EMPTY,
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
from tests.auditor.checks.leaks import LAST, all_but_last, always, middle, reading_others

FAIL, PASS, OPEN, ERROR = Verdict.FAIL, Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.ERROR
WORDS = ("amber", "falcon", "meadow", "velvet", "harbor", "cedar")


IDS, CHAT = Mode.COMPLETION_IDS.value, Mode.CHAT_TEXT.value


def note(seen: CanarySeen, trial: Trial, mode: str = IDS, tail: str = PHRASE, **more: Any) -> None:
    seen.trials.append(trial)
    more.setdefault("surfaced", tail == PHRASE and trial.nonce is True)
    seen.asked.append(Asked(trial, mode, trial.repeat % 2 == 0, tail, trial.name in SHARES, **more))
    count(seen, seen.asked[-1], control=trial.name in (CONTROL, "surfacing"))


POOL = 40_000


def filled(count: int, own: float) -> tuple[Record, dict[int, tuple[int, int, int]]]:
    """A node whose pool was filled before the rounds, each of which served 6,000 tokens, so many of them ours."""
    record, windows, served = Record([Role("unified", {0: POOL})]), {}, 2 * POOL
    record.note({0: 0}, 0)
    record.note({0: served}, served)
    mine = float(served)
    for number in range(count):
        planted = record.note({0: served}, mine)
        served, mine = served + 5_000, mine + own * 5_000
        read = record.note({0: served}, mine)
        served, mine = served + 1_000, mine + own * 1_000
        windows[number] = planted, read, record.note({0: served}, mine)
    return record, windows


def rounds(
    count: int = 20, mode: str = IDS, surfaced: int = 10, own: float = 0.95, **changes: Any
) -> CanarySeen:
    """Clean rounds: victim and drawn length answered, N and N+1 refused; nonce and phrase take turns. Before them ten
    short prompts, of which ``surfaced`` gave their phrase."""
    seen = CanarySeen(LIMITS, (A, B), planned=count, rounds_done=count)
    for number in range(10):
        note(seen, seen_as("surfacing", 512, repeat=number), mode, surfaced=number < surfaced)
    for number in range(count):
        for name, tokens, outcome in (
            ("victim", 5_162, ANSWERED),
            ("N", N, REFUSED),
            ("N+1", N + 1, REFUSED),
            ("control", 512, ANSWERED),
            ("boundary" if number % 10 == 0 else "log-uniform", 5_162 - 17 * number, ANSWERED),
        ):
            tail = PHRASE if number % 2 else NONCE
            note(seen, seen_as(name, tokens, outcome, repeat=number), mode, tail)
    seen.served, seen.windows = filled(count, own)
    for name, value in changes.items():
        setattr(seen, name, value)
    return seen


def changed(seen: CanarySeen, at: int, **more: Any) -> None:
    """Trial number ``at`` ended otherwise."""
    trial = replace(seen.trials[at], **more)
    seen.trials[at] = trial
    surfaced = seen.asked[at].surfaced and trial.nonce is True
    seen.asked[at] = replace(seen.asked[at], trial=trial, surfaced=surfaced)


def recounted(seen: CanarySeen) -> CanarySeen:
    """With its misses as if nobody had followed them up."""
    seen.misses.clear()
    for one in seen.asked:
        short = one.trial.name in (CONTROL, "surfacing")
        count(seen, one, control=short)
        if one.trial.missed and not short:
            misses_of(seen, one).add(Miss(one.trial))
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


def voided(count: int, of: int = 20, outcome: Outcome = BUSY) -> CanarySeen:
    seen = rounds(of)
    for at in range(count):
        changed(seen, at, outcome=outcome, nonce=None)
    return seen


def forgetful(count: int, controls: int = 0, **more: Any) -> CanarySeen:
    """So many long answers, and so many short ones, did not give what was asked."""
    seen = rounds(**more)
    short = [at for at, one in enumerate(seen.trials) if one.name in ("control", "surfacing")]
    long = [at for at, one in enumerate(seen.trials) if one.outcome is ANSWERED and at not in short]
    rng = Random(1)
    for at in (*rng.sample(long, count), *rng.sample(short, controls)):
        changed(seen, at, nonce=False)
    return recounted(seen)


def blind() -> CanarySeen:
    """The nonce comes, the phrase never: stale text would not have surfaced."""
    seen = rounds(surfaced=0)
    seen.asked = [replace(one, surfaced=False) for one in seen.asked]
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
        (rounds(12), OPEN, "allows 12 of 60 rounds"),
        (rounds(0), OPEN, "no effective trial"),
        (rounds(stopped="The budget is used up."), OPEN, "budget"),
        (rounds(withheld=True), OPEN, "consent"),
        (rounds(unhealthy="A node does not answer."), FAIL, "no longer healthy"),
        (rounds(), PASS, "completions with token ids, streamed and whole"),
        (rounds(untested=("responses",)), PASS, "Not asked: responses."),
        (blind(), OPEN, "0 of 40"),
        (rounds(asked=[], trials=[]), OPEN, "no effective trial"),
        (rounds(served=Record([Role("unified", {0: POOL})])), OPEN, "counters do not show"),
        (rounds(own=0.11), OPEN, "% of what a trial may have read was ours"),
        (rounds(serving=Serving(unsure="several processes answer")), OPEN, "several processes answer"),
        (voided(11), PASS, "11 void"),
        (voided(12), OPEN, "void"),
        (voided(5, outcome=EMPTY), OPEN, "adds 7.1 effective trials"),  # nothing surfaced in them
        (voided(12, outcome=EMPTY), OPEN, "12 of 71 accepted requests were answered with nothing"),
        (forgetful(1), PASS, ""),
        (forgetful(9), OPEN, "run coherence"),
        (forgetful(8, controls=12), OPEN, "adds 4.4 effective trials"),
        (forgetful(40, controls=30), OPEN, "most answers did not"),
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


def test_a_void_trial_of_the_drawn_length_takes_its_round_away() -> None:
    """Voided victims leave the rounds whole; a voided drawn request does not count as clean."""
    seen, whole = rounds(60), effective_trials(rounds(60))
    for at, one in enumerate(seen.trials):
        if one.name in SHARES and one.repeat < 12:
            changed(seen, at, outcome=FAILED, nonce=None)
    result = judged("canary", seen)
    assert result.measures["accepted_rounds"] == 48
    assert result.measures["effective_trials"] == pytest.approx(whole * 48 / 60, rel=0.03)
    assert "12 void" in result.summary


def test_the_bound_counts_phrase_trials_with_the_surfacing_that_is_certain() -> None:
    """Ten of twenty rounds asked for their phrase; all 40 prompts that did gave it. A nonce's own page says nothing."""
    seen = rounds(20)
    note(seen, seen_as("N", N))
    measures = judged("canary", seen).measures
    assert (measures["accepted"], measures["refused"], measures["accepted_above_limit"]) == (60, 40, 1)
    assert measures["dirtying"] == pytest.approx(0.95, abs=0.02)
    effective = 10 * lower_bound(41, 41) * dirtying(seen)
    assert measures["effective_trials"] == pytest.approx(effective, abs=0.01)
    assert measures["bound"] == pytest.approx(effective_bound(effective), abs=1e-4)


def test_what_a_run_adds_is_kept_for_the_nights_to_come() -> None:
    """By stratum, way and tail: so many clean trials, and the sum of their dirtying. Surfacing is not in it."""
    seen = rounds(20, serving=Serving(build="ab" * 32, said="sglang 0.5.22", replica="r1", where="newcomer"))
    evidence = judged("canary", seen).measures["evidence"]
    assert (evidence["build"], evidence["where"], evidence["hits"]) == ("ab" * 32, "newcomer", 0)
    assert evidence["trials"][0] == {
        "stratum": "boundary", "mode": IDS, "tail": NONCE, "replica": "r1", "count": 2, "weight": pytest.approx(1.9, abs=0.05),
    }  # fmt: skip
    assert sum(one["count"] for one in evidence["trials"]) == 20
    assert {"mode": IDS, "tail": PHRASE, "trials": 40, "surfaced": 40} in evidence["surfacing"]
    changed(seen, 10, outcome=BUSY, nonce=None)
    again = judged("canary", seen).measures["evidence"]
    assert again["void_share"] == pytest.approx(1 / 110, abs=1e-4)
    assert judged("canary", rounds(sightings=[sighting()])).measures["evidence"]["hits"] == 1


def test_a_way_that_hides_stale_text_adds_nothing_and_is_named() -> None:
    seen, chat = rounds(20), rounds(20, mode=CHAT)
    bound = judged("canary", seen).measures["bound"]
    seen.trials += chat.trials
    seen.asked += [replace(one, surfaced=False) for one in chat.asked]
    seen.trials = [one.trial for one in seen.asked]
    result = judged("canary", seen)
    assert result.measures["bound"] == bound
    assert result.verdict is OPEN or "chat with text (0 of 40)" in result.summary


def test_a_decoy_met_twice_over_by_three_words_is_an_error_as_well() -> None:
    assert judged("canary", rounds(sightings=[sighting(decoy=True, run=3, suspicious=True)])).verdict is ERROR


def test_dirtying_is_unknown_without_counters_of_what_answers() -> None:
    assert dirtying(rounds()) == pytest.approx(0.95, abs=0.02)
    assert dirtying(CanarySeen(LIMITS)) is None
    assert dirtying(rounds(serving=Serving(unsure="several processes answer"))) is None


def test_the_drawn_length_comes_last_and_what_needs_consent_is_left_out() -> None:
    """An accepted request overwrites the pages that the others would read; a victim covers what the reader may read."""
    drawn = Cell("edge", 4_097, drawn=True)
    asked = cells(LIMITS, True, drawn)
    assert [cell.name for cell in asked] == ["victim", "N", "N+1", "midpoint", "control", "edge"]
    assert [cell.name for cell in cells(LIMITS, False, drawn)] == ["victim", "control", "edge"]
    assert asked[0].tokens > drawn.tokens
    assert cells(LIMITS, True, Cell("boundary", N - 1))[0].tokens == N - 128 - 32
    assert [cell.name for cell in cells(ROOMY, False, drawn)][1:3] == [
        "N",
        "N+1",
    ]  # the pool holds the context
    assert cells(Limits(None, C, None), True, drawn) == ()


def test_ceilings_cut_the_rounds_before_the_run() -> None:
    _, seen, prober = in_lab("canary", permission=Permission(consent=True, seed=3, prompt_tokens=110_000))
    assert 0 < seen.rounds_done <= seen.planned < 20
    plan = CanaryProbe().plan(prober)
    assert plan.rounds == pytest.approx(seen.planned, abs=4)
    assert prober.spent.prompt_tokens < 115_000
    assert "136 to 5,321" in plan.note  # 8 tokens are the chat template's


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


FEW = Permission(consent=True, seed=5, prompt_tokens=300_000)


@pytest.mark.parametrize(
    ("fault", "options", "verdict"),
    [
        ("none", {}, PASS),
        ("fixed_0_5_21", {}, PASS),
        ("sse_error_in_200", {}, PASS),
        ("stale_pages", {}, FAIL),
        ("stale_pages", {"order": "fifo"}, FAIL),
        ("snapshot_restore", {"prefill_pool": 16_384}, FAIL),
        ("short_transfer", {"prefill_pool": 16_384}, FAIL),
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
    asked = [one for one in seen.asked if one.trial.name not in ("surfacing", "filling")]
    for number in (0, 1):
        turns = [one.trial.tenant for one in asked if one.trial.repeat == number]
        assert turns[:2] in ([A, B], [B, A])
        assert all(one != other for one, other in pairwise(turns))
    for name in ("victim", "N", "N+1", "midpoint", "control", "log-uniform"):
        of = [one for one in asked if one.trial.name == name]
        assert {one.trial.tenant for one in of} == {A, B}
        assert {one.stream for one in of} == {True, False}
        assert len({one.mode for one in of}) == 4
        assert {one.tail for one in of} >= {NONCE, PHRASE}


def test_the_first_verified_hit_stops_all_but_five_repeats() -> None:
    result, seen, _ = in_lab("canary", ["stale_pages"], permission=FEW)
    assert seen.rounds_done == 0
    assert result.measures["repeats_after_hit"] == 5
    assert len([one for one in seen.trials if one.name != "surfacing"]) < 12
    assert any(hit["kind"] == "cross-tenant" for hit in result.measures["hits"])


def test_without_consent_the_boundary_is_left_out_and_nothing_passes() -> None:
    permission = Permission(consent=False, seed=5, prompt_tokens=200_000)
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


# What was constant is drawn: holes of every kind are met, and no healthy server is one

RICH = Permission(consent=True, prompt_tokens=700_000)


@pytest.mark.parametrize(
    ("places", "struck", "seeds"),
    [
        (all_but_last, always, 10),  # a nonce alone is answered there; of 100 seeds 100 were found
        (lambda length: range(length // 2), always, 1),
        (lambda length: range(max(0, length - 512)), always, 1),
        (middle, lambda length, *_: length > 2_000, 1),
        (all_but_last, lambda length, *_: length > 1_024 and length % 16 <= 6, 2),  # vllm#50749
        (all_but_last, lambda length, *_: 3_000 <= length <= 3_600, 1),
        (all_but_last, lambda length, start, rng: "<|user|>" in start, 2),
        (all_but_last, lambda length, start, rng: rng.random() < 0.1, 2),
    ],
)
def test_a_server_that_reads_anothers_pages_at_some_places_of_some_prompts_is_found(
    places: Any, struck: Any, seeds: int
) -> None:
    missed = []
    for seed in range(seeds):
        result, _, _ = in_lab(
            "canary",
            ["healthy"],
            permission=replace(RICH, seed=seed),
            meddle=reading_others(places, struck, seed),
            prefill_pool=16_384,
        )
        if (result.verdict, result.severity) != (FAIL, "critical"):
            missed.append((seed, result.summary))
    assert not missed


def test_a_whole_healthy_night() -> None:
    """It costs about what was named, finds phrases in windows too, and is silent for at most a tenth of its time."""
    permission = Permission(consent=True, seed=2, idle=100.0)
    result, seen, prober = in_lab("canary", ["healthy"], permission=permission, prefill_pool=16_384)
    assert result.verdict is PASS, result.summary
    assert result.measures["effective_trials"] > 15

    plan = CanaryProbe().plan(prober)
    assert seen.rounds_done == plan.rounds == 60
    assert plan.prompt_tokens == pytest.approx(prober.spent.prompt_tokens, rel=0.2)
    assert plan.requests == pytest.approx(len(seen.asked), rel=0.05)

    windows = [one for one in seen.asked if one.tail == WINDOW and one.trial.tokens > 1_000]
    assert windows
    assert all(one.surfaced for one in windows if not one.trial.cramped)
    served = [one for one in seen.trials if one.outcome is ANSWERED]
    assert seen.own_tokens < sum(one.tokens + (one.completion_tokens or 0) for one in served)

    assert 0 < seen.idle < 100.1
    assert result.measures["idle_seconds"] == round(seen.idle, 1)


def test_the_lengths_of_a_stored_result_are_read_back_old_ones_too() -> None:
    seen = rounds(sightings=[sighting()])
    stored = judged("canary", seen).measures
    assert failing(stored) == [N]
    assert set(answered(stored)) == {one.tokens for one in seen.trials if one.name != "surfacing"}
    old = {"matrix": [{"tokens": N, "outcomes": {"refused": 3}}, {"tokens": 9, "outcomes": {"busy": 1}}]}
    assert answered(old) == [N]


@pytest.mark.parametrize(
    ("replayed", "read", "kind", "asked"),
    [
        (False, True, MissKind.EXPLAINED, 2),
        (True, True, MissKind.UNREPRODUCED, 2),
        (False, False, MissKind.PERSISTENT, 22),
    ],
)
def test_a_miss_is_followed_up_at_once(replayed: bool, read: bool, kind: MissKind, asked: int) -> None:
    misses, sent = Misses(control_asked=True), []
    misses.controls.append(seen_as(CONTROL, 512))

    async def fresh() -> Trial:
        sent.append("fresh")
        return seen_as("edge", 4_097, nonce=read)

    async def short() -> Trial:
        sent.append("short")
        return seen_as(CONTROL, 512)

    async def replay() -> bool | None:
        sent.append("replay")
        return replayed

    missed = seen_as("edge", 4_097, nonce=False)
    asyncio.run(follow_up(misses, missed, Ways(fresh, short, replay), above=False))
    assert [one.kind for one in misses.found] == [kind]
    assert len(sent) == asked
    assert misses.differs is (kind is MissKind.PERSISTENT)


def test_words_of_others_in_the_place_of_the_own_are_asked_for_again() -> None:
    """Only the last page of long prompts is another tenant's: no marker ever shows, and the question is theirs. One
    budget of a few prompts is enough, since the others plant again before the same question."""
    meddle = reading_others(
        lambda length: range(max(0, length - LAST), length), lambda length, start, rng: length >= 1_000
    )
    few = Permission(consent=True, seed=7, prompt_tokens=120_000)
    result, _, prober = in_lab("canary", ["healthy"], permission=few, meddle=meddle, prefill_pool=16_384)
    found = prober.registry
    worse = run_wide.judged(result, found.traces, prober.provenance, found.guesses)
    assert (worse.verdict, worse.severity) == (FAIL, "critical"), worse.summary
    assert "answers gave what another request had asked for" in worse.summary


def test_a_server_that_forgets_at_some_lengths_does_not_pass() -> None:
    """Answers out of nobody's pages, at a band of lengths: no marker comes, and nothing is shown to be right."""

    def meddle(lab: Any, prober: Any) -> None:
        def assign_row(row: Any, rows: Any) -> None:
            if 2_000 <= row.sequence.length <= 6_000:
                row.sequence.pool.tokens[row.sequence.table] = ord("z")

        lab.deployment.nodes[-1].faults.assign_row = assign_row

    result, seen, _ = in_lab("canary", ["healthy"], permission=FEW, meddle=meddle, prefill_pool=16_384)
    assert result.verdict is OPEN, result.summary
    assert any(one.differs for one in seen.misses.values())
    assert "run coherence" in result.summary


def test_a_miss_without_a_short_prompt_beside_it_is_no_pass() -> None:
    seen = rounds()
    changed(seen, -1, nonce=False)
    assert judged("canary", recounted(seen)).verdict is PASS

    for one in seen.misses.values():
        one.controls.clear()
    result = judged("canary", seen)
    assert result.verdict is OPEN
    assert "no short prompt was asked in the same way" in result.summary


def test_the_number_of_a_question_is_no_frame() -> None:
    """A real model repeated "Record 4156. The audit phrase is: ..." and the page said to be read was 2,078."""
    marker = draw_marker(seeded(3))
    planted = Prompt(1_792, (), frame_tokens=32)
    text = (
        f" {marker}. Record 4156. The audit phrase is: {marker}. Record 0008. The audit phrase is: {marker}"
    )
    assert pages_of(text, marker, planted, page=64) == (4,)


def test_one_miss_in_each_way_is_too_many_together() -> None:
    """A leak at three of a hundred prompts strikes each of a dozen ways and tails once."""
    seen, chats = rounds(), rounds(mode=CHAT)
    seen.trials += chats.trials
    seen.asked += chats.asked
    for at in (-1, -6):
        for side in (0, len(chats.trials)):
            changed(seen, at - side, nonce=False)
    result = judged("canary", recounted(seen))
    assert result.verdict is OPEN
    assert "over 4 ways to ask" in result.summary


@pytest.mark.parametrize("read", [True, False])
def test_short_prompts_are_asked_where_a_miss_has_none_beside_it(read: bool) -> None:
    """In a run's first answers a way may have none; they decide whether the miss is followed up at all."""
    seen, sent = CanarySeen(LIMITS, (A, B)), []
    missed = Asked(seen_as("edge", 4_097, nonce=False), IDS, True, NONCE)
    misses = misses_of(seen, missed)

    async def fresh() -> Trial:
        sent.append("fresh")
        return seen_as("edge", 4_097)

    async def short() -> Trial:
        sent.append("short")
        control = seen_as(CONTROL, 512, nonce=read)
        count(seen, replace(missed, trial=control), control=True)
        return control

    async def replay() -> bool | None:
        sent.append("replay")
        return False

    asyncio.run(follow_up(misses, missed.trial, Ways(fresh, short, replay), above=False))
    assert sent == ["short"] * 3 + (["replay", "fresh"] if read else [])
    assert misses.control_lost is not read


@pytest.mark.parametrize(
    ("outcomes", "left"),
    [
        ([FAILED], False),
        ([FAILED, FAILED], True),
        ([REFUSED, FAILED, FAILED], False),
        ([REFUSED, FAILED, FAILED, FAILED], True),
        ([FAILED, REFUSED, FAILED, FAILED], False),
    ],
)
def test_a_length_that_keeps_failing_is_left_out(outcomes: list[Any], left: bool) -> None:
    assert keeps_failing([seen_as("N", N, outcome) for outcome in outcomes]) is left


def _asked(*outcomes: tuple[int, Outcome]) -> list[Asked]:
    return [Asked(seen_as("edge", tokens, outcome), IDS, True, NONCE) for tokens, outcome in outcomes]


OK, LOST = (6_000, ANSWERED), (5_000, FAILED)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (_asked(LOST, LOST, LOST), "3 failures in a row of prompts of 5,000 tokens and more"),
        (
            _asked(LOST, (900, ANSWERED), LOST, (900, ANSWERED), LOST),
            "3 failures in a row",
        ),  # shorter ones between
        (_asked(LOST, LOST, OK, LOST), ""),
        (_asked(LOST, LOST, LOST, OK), ""),
        (_asked(*[(9_000, FAILED)] * 5), ""),  # above the limit they are left out
        (_asked(*[(5_000, BUSY)] * 3), ""),
        (_asked(*[OK, (5_000, BUSY)] * 11), "11 void (11 busy) of 100 planned trials already forbid a pass"),
        (_asked(*[OK, (5_000, BUSY)] * 10), ""),
        ([], ""),
    ],
)
def test_sending_ends_where_it_can_only_cost(asked: list[Asked], said: str) -> None:
    reason = why_no_more(asked, 8_186, 100)
    assert said in reason
    assert bool(reason) is bool(said)


def test_what_was_done_before_it_broke_off_is_kept() -> None:
    seen = rounds(60, stopped="Stopped after 3 failures in a row.", rounds_done=30)
    result = judged("canary", seen)
    assert result.verdict is OPEN
    assert "30 of 60 rounds were done and 30 are missing" in result.summary
    assert "What was done adds" in result.summary
    assert sum(one["count"] for one in result.measures["evidence"]["trials"]) == 60


def test_minutes_are_a_budget_as_tokens_are() -> None:
    permission = Permission(consent=True, seed=5, seconds=3.0)
    result, seen, _ = in_lab(
        "canary", ["none"], permission=permission, meddle=lambda lab, prober: prober.begin()
    )
    assert "The budget of 0.05 minutes for one check is used up." in result.summary
    assert result.verdict is OPEN
    assert 0 < len(seen.trials) < 120
