"""Words frames differently from run to run, on one skeleton: an engine, a guard or a cache that reacts to one
sentence must not decide what an audit sees. None asks a model to say something: guardrails take "every answer must
consist of" for an injection."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wording:
    """What a run calls its frames: "Record 0042. The audit phrase is: ...". Neither word is in the list of markers."""

    noun: str
    kind: str

    @property
    def head(self) -> str:
        """Before the number."""
        return f"{self.noun} "

    def body(self, phrase: str) -> str:
        """After it: the phrase twice, each time behind words that lead on to it."""
        return (
            f". The {self.kind} phrase is: {phrase}. "
            f"Every {self.noun.lower()} has the {self.kind} phrase: {phrase}. "
        )

    def question(self, number: int) -> str:
        """The beginning of a frame, which the phrase completes."""
        return f" {self.head}{number % 10_000:04d}. The {self.kind} phrase is:"


WORDINGS = (
    Wording("Record", "audit"),
    Wording("Entry", "ledger"),
    Wording("Item", "sample"),
    Wording("Row", "demo"),
)
USUAL = WORDINGS[0]


def draw_wording(draw: Callable[[int], int]) -> Wording:
    """The wording of a run."""
    return WORDINGS[draw(len(WORDINGS))]


FRAME_WORDS = tuple(
    dict.fromkeys(
        word
        for text in (
            *(f"{wording.head} {wording.body('')}" for wording in WORDINGS),
            "locker code nothing is written here",
        )
        for word in text.lower().translate(str.maketrans("", "", string.punctuation)).split()
    )
)
"""Every word of ours that frames, questions and fillings hold: no word of a marker looks like one."""
