"""What a check's answers held of other requests decides over what the check concluded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvaudit.auditor.checks.prober_protocol import Trace
from kvaudit.auditor.prober.provenance import Provenance, strange_words
from kvaudit.auditor.prober.run_wide import judged
from kvaudit.auditor.text.markers import Marker
from kvaudit.auditor.text.prompts import Contents, Nonce
from kvaudit.auditor.verdict import Result, Verdict

PASSED = Result("accounting", Verdict.PASS, "All were right.", {"prompts": 20}, "Run again.", "Much.")
MARKER = Trace(
    "marker",
    "headers",
    "tenant-b",
    "tenant-a",
    ("garden", "harbor", "island", "jacket"),
    4,
    900,
    verified=True,
)
NONCE = Trace("nonce", "text", "tenant-b", "tenant-a", ("pomfret",), 1, 900)
FACT = replace(NONCE, kind="fact", words=("spanner",))
OWN = Contents(Marker(("amber", "bishop", "cedar", "dragon", "engine", "falcon")), Nonce("walnut").tail)


@pytest.mark.parametrize(
    ("traces", "hits", "doubt"),
    [
        ([], 0, ""),
        ([MARKER], 1, ""),
        ([NONCE], 0, "Not shown either way: the answer"),
        ([NONCE, FACT], 1, ""),
    ],
)
def test_evidence_that_adds_up_says_what_was_concluded(traces: list[Trace], hits: int, doubt: str) -> None:
    added = {"build": "ab", "hits": 0, "doubt": "", "trials": []}
    evidence = judged(replace(PASSED, measures={"evidence": added}), traces, Provenance()).measures[
        "evidence"
    ]
    assert (evidence["hits"], evidence["build"]) == (hits, "ab")
    assert evidence["doubt"].startswith(doubt)
    assert bool(evidence["doubt"]) is bool(doubt)


def answers(controls: int, foreign_controls: int, long: int, foreign: int) -> Provenance:
    found = Provenance()
    for number in range(controls):
        said = [f"control{number}x{one}" for one in range(3)] if number < foreign_controls else []
        found.note("chat", frozenset(said), control=True)
    for number in range(long):
        said = [f"long{number}x{one}" for one in range(3)] if number < foreign else []
        found.note("chat", frozenset(said), control=False)
    return found


@pytest.mark.parametrize(
    ("traces", "verdict", "said"),
    [
        ([], Verdict.PASS, "All were right"),
        ([MARKER], Verdict.FAIL, "not in its text but in its headers"),
        ([replace(MARKER, planted_by="tenant-a", where="text")], Verdict.FAIL, "same tenant"),
        ([replace(MARKER, verified=False, run=3)], Verdict.INCONCLUSIVE, "3 words of another"),
        ([NONCE], Verdict.INCONCLUSIVE, "gave the nonce of another"),
        ([NONCE, NONCE], Verdict.INCONCLUSIVE, "gave the nonce of another"),
        ([NONCE, FACT], Verdict.FAIL, "2 answers gave what another request had asked for"),
        ([replace(MARKER, decoy=True)], Verdict.ERROR, "never sent to anybody"),
    ],
)
def test_what_came_back_decides(traces: list[Trace], verdict: Verdict, said: str) -> None:
    result = judged(PASSED, traces, Provenance())
    assert (result.verdict, said in result.summary) == (verdict, True)
    assert (result.severity == "critical") is (verdict is Verdict.FAIL)
    assert result.measures["prompts"] == 20
    assert len(result.measures["provenance"]["traces"]) == len(traces)


@pytest.mark.parametrize(
    ("live", "guessed", "chance", "verdict"),
    [
        (2, 2, 0.02, Verdict.FAIL),
        (2, 2, 0.2, Verdict.INCONCLUSIVE),  # a fifth of the list is live
        (5, 5, 0.2, Verdict.FAIL),
        (5, 30, 0.2, Verdict.INCONCLUSIVE),  # a weak model that says some noun
        (25, 30, 0.2, Verdict.FAIL),
    ],
)
def test_a_model_that_guesses_nouns_is_not_taken_for_a_leak(
    live: int, guessed: int, chance: float, verdict: Verdict
) -> None:
    traces = [replace(NONCE, words=(f"noun{number}",)) for number in range(live)]
    assert judged(PASSED, traces, Provenance(), [chance] * guessed).verdict is verdict


def test_a_worse_verdict_of_the_check_stays() -> None:
    failed = replace(PASSED, verdict=Verdict.FAIL, severity="critical", summary="Its own words.")
    assert judged(failed, [MARKER], Provenance()).summary == "Its own words."
    slighter = replace(failed, severity="medium")
    assert judged(slighter, [MARKER], Provenance()).severity == "critical"
    still_open = replace(PASSED, verdict=Verdict.INCONCLUSIVE, summary="Too few.")
    assert judged(still_open, [NONCE], answers(40, 0, 40, 30)).summary == "Too few."


@pytest.mark.parametrize(
    ("controls", "foreign_controls", "long", "foreign", "verdict"),
    [
        (40, 0, 60, 20, Verdict.INCONCLUSIVE),
        (29, 0, 60, 60, Verdict.PASS),  # fewer controls say nothing
        (40, 0, 60, 3, Verdict.PASS),  # a weak model now and then
        (40, 35, 60, 55, Verdict.PASS),  # a model that babbles does so in short answers as well
        (40, 0, 0, 0, Verdict.PASS),
    ],
)
def test_words_of_nobody_known_forbid_a_pass_where_long_answers_hold_more_of_them(
    controls: int, foreign_controls: int, long: int, foreign: int, verdict: Verdict
) -> None:
    result = judged(PASSED, [], answers(controls, foreign_controls, long, foreign))
    assert result.verdict is verdict
    assert ("This is not a pass." in result.summary) is (verdict is Verdict.INCONCLUSIVE)


def test_a_new_check_keeps_the_controls_alone() -> None:
    found = answers(40, 0, 60, 20)
    found.begin()
    assert judged(PASSED, [], found).measures["provenance"]["by_mode"]["chat"] == {
        "answers": 0, "own": 0, "others": 0, "foreign_words": 0, "controls": 40, "controls_foreign_words": 0
    }  # fmt: skip


def test_what_a_model_says_in_short_answers_is_its_own() -> None:
    found, thinking = Provenance(), frozenset(("okay", "user", "pasted", "long", "list"))
    for _ in range(30):
        found.note("chat", thinking, control=True)
        found.note("chat", thinking, control=False)
    assert found.by_mode["chat"].foreign == 0


@pytest.mark.parametrize(
    ("text", "tokens", "strange"),
    [
        (" walnut. Code Q: walnut", 8, set()),
        (" Record 0007. The audit phrase is: amber bishop cedar", 20, set()),
        (" Dear Mrs Okonkwo, thank you for your letter", 12, {"dear", "okonkwo", "thank", "your"}),
        ("walnut " * 48 + "Okonkwo refund account ending", 60, set()),  # beyond what is looked at
        ("", None, set()),
    ],
)
def test_words_that_the_prompt_does_not_hold(text: str, tokens: int | None, strange: set[str]) -> None:
    assert strange_words(text, tokens, OWN) == strange
