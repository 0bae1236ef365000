"""Provenance over answers that were written before its thresholds were looked at (healthy_answers/README.md)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvaudit.auditor.prober.provenance import FOREIGN_WORDS, LEAST_CONTROLS, Provenance, strange_words
from kvaudit.auditor.prober.run_wide import judged
from kvaudit.auditor.stats.bounds import interval
from kvaudit.auditor.text.markers import Marker
from kvaudit.auditor.text.prompts import Contents, Needle, Nonce, Tail, phrase_tail, together
from kvaudit.auditor.verdict import Result, Verdict

HERE = Path(__file__).parent
RUNS, CONTROLS, ANSWERS = 200, 40, 60
SHORT = 512

Said = tuple[list[frozenset[str]], list[frozenset[str]]]


def contents_of(kept: dict[str, Any]) -> Contents:
    asked = kept["tail"]
    needles = tuple(Needle(key, word, 0.5) for key, word in (kept.get("carried") or {}).items())
    listed = tuple(Needle(key, word, 0.5) for key, word in (asked.get("needles") or {}).items())
    if asked.get("phrase"):
        tail = phrase_tail(lambda below: asked.get("record", 0) % below, 64)
    elif listed and asked.get("nonce"):
        tail = together(Nonce(asked["nonce"]), listed)
    elif listed:
        tail = Tail(listed[0].question, needles=listed)
    else:
        tail = Nonce(asked["nonce"]).tail
    return Contents(Marker(tuple(kept["marker"])), tail, (*needles, *listed))


def answers(files: Iterable[Path]) -> Iterator[tuple[str, dict[str, Any], frozenset[str]]]:
    for path in sorted(files):
        for kept in json.loads(path.read_text()):
            words = strange_words(kept["answers"], kept.get("completion_tokens"), contents_of(kept))
            yield path.stem.partition("_")[0], kept, words


def healthy(of: str) -> Said:
    """Words of short and of long answers: of every kind, of a way to ask, or of a family of kinds."""
    short: list[frozenset[str]] = []
    long: list[frozenset[str]] = []
    for family, kept, words in answers((HERE / "healthy_answers").glob("*.json")):
        if of in ("any", family, kept["mode"]):
            (short if kept["tokens"] <= SHORT else long).append(words)
    return short, long


def runs(said: Said) -> Iterator[Provenance]:
    """Runs that meet some of these short and long answers."""
    chance = random.Random(5)
    short, long = said
    assert len(short) >= LEAST_CONTROLS
    for _ in range(RUNS):
        found = Provenance()
        for words in chance.sample(short, min(len(short), CONTROLS)):
            found.note("mode", words, control=True)
        for words in chance.sample(long, min(len(long), ANSWERS)):
            found.note("mode", words, control=False)
        yield found


PASSED = Result("canary", Verdict.PASS, "All is well.", {}, "Run again.", "Much.")


@pytest.mark.parametrize("of", ["any", "completions", "chat", "instruct", "language"])
def test_healthy_models_are_hardly_ever_doubted(of: str) -> None:
    verdicts = [judged(PASSED, [], found).verdict for found in runs(healthy(of))]
    doubted = verdicts.count(Verdict.INCONCLUSIVE)
    assert verdicts.count(Verdict.PASS) == RUNS - doubted, "words alone are never a fail"
    assert doubted <= 0.02 * RUNS, f"{doubted} of {RUNS}, {interval(doubted, RUNS)}"


def test_a_base_model_that_babbles_at_length_alone_is_doubted_and_never_failed() -> None:
    """Its short answers here are to the point and its long ones are not, as a stranger's pages would have it."""
    verdicts = {judged(PASSED, [], found).verdict for found in runs(healthy("base"))}
    assert Verdict.INCONCLUSIVE in verdicts
    assert Verdict.FAIL not in verdicts


def test_nearly_every_strangers_text_shows() -> None:
    leaks = [words for _, _, words in answers([HERE / "leaking_answers.json"])]
    assert sum(len(words) >= FOREIGN_WORDS for words in leaks) >= 0.9 * len(leaks)
