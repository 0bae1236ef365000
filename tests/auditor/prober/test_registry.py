"""What of other requests stands in an answer, wherever it stands."""

from __future__ import annotations

from typing import Any

import pytest

from kvaudit.auditor.prober.aside import Aside
from kvaudit.auditor.prober.registry import Registry
from kvaudit.auditor.text.markers import Marker
from kvaudit.auditor.text.prompts import Contents, Needle, Nonce, phrase_tail, together

OURS = Marker(("amber", "bishop", "cedar", "dragon", "engine", "falcon"))
THEIRS = Marker(("garden", "harbor", "island", "jacket", "kettle", "ladder"))
OWN = Contents(OURS, Nonce("walnut").tail)
OTHER = Contents(THEIRS, Nonce("pomfret").tail, (Needle("K", "spanner", 0.5),))


def found(text: str, own: Contents = OWN, where: str = "text", **more: Any) -> list[tuple[str, str, bool]]:
    registry = Registry(**more)
    registry.plant(OTHER, "tenant-b")
    registry.plant(own, "tenant-a")
    traces = registry.search({where: text}, own, tenant="tenant-a", tokens=900)
    assert list(traces) == registry.traces
    assert {trace.planted_by for trace in traces} <= {"tenant-b"}
    return [(trace.kind, trace.where, trace.verified) for trace in traces]


@pytest.mark.parametrize("where", ["text", "headers", "error", "choices.logprobs.tokens"])
def test_a_marker_of_another_request_is_found_wherever_it_stands(where: str) -> None:
    assert found("so: garden harbor island jacket", where=where) == [("marker", where, True)]
    assert found("so: garden harbor island", where=where) == [("marker", where, False)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "walnut",
        "amber bishop cedar dragon engine falcon",
        "garden harbor",
        "the pomfret is a fish",
        "a spanner",
    ],
)
def test_own_words_and_single_words_by_chance_are_nothing(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (" pomfret. Code Q:", "nonce"),
        ("I think that code Q: pomfret", "nonce"),
        ("Locker K: spanner", "fact"),
    ],
)
def test_an_answer_of_another_requests_nonce_or_fact_is_noted_and_decides_nothing_alone(
    text: str, kind: str
) -> None:
    assert {(one, verified) for one, _, verified in found(text)} == {(kind, False)}


def test_a_fact_that_both_prompts_hold_is_ones_own() -> None:
    own = Contents(OURS, Needle("K", "spanner", 0.5).tail, (Needle("K", "spanner", 0.5),))
    assert found("spanner", own) == []


def test_a_list_is_not_read_as_the_answer_to_one_key() -> None:
    own = Contents(OURS, together(Nonce("walnut"), [Needle("K", "lemon", 0), Needle("M", "desk", 1)]))
    assert found("pomfret", own) == []


def test_words_of_the_list_that_nobody_was_sent_are_counted_as_guesses() -> None:
    registry = Registry()
    registry.plant(OTHER, "tenant-b")
    for text in ("parlour", "pomfret", "walnut", "the", "amber"):
        registry.search({"text": text}, OWN, tenant="tenant-a", tokens=900)
    assert registry.guesses == [1 / 2048] * 2
    assert len(registry.traces) == 1


def test_a_word_that_an_answer_repeats_is_one_guess() -> None:
    """Of one that lost itself in a loop, or says the same in its text and beside it."""
    registry = Registry()
    registry.plant(OTHER, "tenant-b")
    registry.search(
        {"text": "pomfret, code Q: pomfret, code Q: pomfret", "logprobs": "code Q: pomfret"},
        OWN,
        tenant="tenant-a",
        tokens=900,
    )
    assert len(registry.guesses) == len(registry.traces) == 1


def test_a_phrase_is_own_by_four_of_its_words() -> None:
    asked = Contents(OURS, phrase_tail(lambda below: 42, 64))
    assert asked.tail.text == " Record 0042. The audit phrase is:"
    assert asked.answered(" amber bishop cedar dragon en")
    assert not asked.answered(" amber bishop cedar")
    assert not asked.answered(" garden harbor island jacket kettle ladder")


def test_markers_of_earlier_runs_and_decoys_say_so() -> None:
    decoy = Marker(("magnet", "napkin", "oyster", "pencil", "quarry", "ribbon"), decoy=True)
    registry = Registry([THEIRS, decoy])
    traces = registry.search({"text": f"{THEIRS} and {decoy}"}, OWN, tenant="tenant-a", tokens=900)
    assert {(trace.earlier_run, trace.decoy) for trace in traces} == {(True, False), (True, True)}
    assert registry.leaks == 1
    registry.begin()
    assert (registry.traces, registry.leaks) == ([], 0)


def frame(**choice: Any) -> dict[str, Any]:
    return {"id": "x1", "model": "m", "choices": [{"index": 0, "delta": {"content": "own text"}, **choice}]}


@pytest.mark.parametrize(
    "choice",
    [
        {"logprobs": {"tokens": [" garden", " har", "bor", " island", " jacket"]}},
        {"delta": {"content": "own", "refusal": "garden harbor island jacket"}},
        {"delta": {"tool_calls": [{"function": {"name": "garden_harbor_island_jacket", "arguments": "{}"}}]}},
        {"delta": {"annotations": [{"quote": "garden harbor"}, {"quote": "island jacket"}]}},
        {"stop_reason": "garden harbor island jacket"},
    ],
)
def test_whatever_stands_beside_the_text_is_gathered(choice: dict[str, Any]) -> None:
    aside = Aside()
    aside.add(frame(**choice))
    assert [one for text in aside.texts().values() for one in found(text)] != []
    assert not any("own text" in text for text in aside.texts().values())


def test_words_that_frames_cut_are_joined() -> None:
    aside = Aside()
    for piece in ("gar", "den harbor isl", "and jacket"):
        aside.add(frame(delta={"refusal": piece}))
    assert found(aside.texts()["choices.delta.refusal"]) == [("marker", "text", True)]


def test_what_is_gathered_is_bounded() -> None:
    aside, deep = Aside(), {"end": "x"}
    for _ in range(500):
        deep = {"a": deep}
    aside.add(deep)
    for number in range(500):
        aside.add({f"field {number}": "word " * 100_000})
    assert len(aside.texts()) <= 40
    assert sum(len(text) for text in aside.texts().values()) <= 2 * 200_000
