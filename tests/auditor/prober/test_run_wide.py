"""What a check's answers held of other requests decides over what the check concluded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvaudit.auditor.checks.prober_protocol import Trace
from kvaudit.auditor.prober.provenance import Provenance, strange_words
from kvaudit.auditor.prober.run_wide import RunMisses, judged
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
        (5, 30, 0.2, Verdict.PASS),  # a weak model that says some noun
        (1, 1, 0.4, Verdict.PASS),  # after hundreds of prompts
        (1, 1, 0.01, Verdict.INCONCLUSIVE),
        (12, 30, 0.2, Verdict.INCONCLUSIVE),
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


def talking(words: list[list[str]]) -> Provenance:
    found = Provenance()
    for said in words:
        found.note("chat", frozenset(said), control=True)
    return found


ALIKE = [["the", "user", "wants", "word"]] * 40
UNLIKE = [[f"invoice{number}x{one}" for one in range(3)] for number in range(40)]


@pytest.mark.parametrize(
    ("controls", "limits", "warns"),
    [
        ([[]] * 40, False, False),
        (ALIKE, True, False),
        (UNLIKE, True, True),
        (UNLIKE[:3] + [[]] * 37, False, False),
    ],
)
def test_a_pass_says_that_words_of_short_answers_were_taken_for_the_models_own(
    controls: list[list[str]], limits: bool, warns: bool
) -> None:
    """Customers' text in every answer, short ones too, is nothing that this could tell from a model's own words."""
    result = judged(PASSED, [], talking(controls))
    assert result.verdict is Verdict.PASS
    assert ("would look the same" in result.does_not_prove) is limits
    assert result.warn is warns
    assert ("whose they are is not known" in result.summary) is warns


def missing(check: str, unexplained: int, of: int, **more: int) -> Result:
    misses = {"answers": of, "unexplained": unexplained, "controls": 30, "controls_missed": 0}
    return replace(
        PASSED,
        check=check,
        measures={"misses": [{**misses, "controls_explained": 0, "controls_flipped": 0, **more}]},
    )


def test_a_miss_in_each_of_several_checks_adds_up() -> None:
    run = RunMisses()
    assert run.judged(missing("rejection", 1, 6)).verdict is Verdict.PASS
    result = run.judged(missing("coherence", 1, 4))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "2 of 10 answers of rejection and coherence" in result.summary
    assert run.judged(missing("accounting", 0, 20)).verdict is Verdict.PASS  # has none itself
    assert run.judged(replace(PASSED, measures={"misses": []})).verdict is Verdict.PASS


def test_misses_that_chance_brings_do_not_add_up_to_a_doubt() -> None:
    run = RunMisses()
    for check in ("rejection", "prefill", "concurrency"):
        flips = missing(check, 1, 120, controls_missed=1, controls_flipped=1)
        assert run.judged(flips).verdict is Verdict.PASS
    unrepeatable = RunMisses()
    for check in ("rejection", "prefill", "concurrency"):
        assert unrepeatable.judged(missing(check, 9, 120, controls_missed=3)).verdict is Verdict.PASS
