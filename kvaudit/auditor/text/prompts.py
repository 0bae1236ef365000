"""Writes the texts of prompts: frames that advertise a marker, nonce questions, needles.

Every text ends in the beginning of the sentence that answers it, so that base models and bare
copiers continue as well as instructed ones answer (measured on a model that sees three characters:
the nonce said twice before it is asked came back 16 of 16 times, said once 13 of 16).
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvaudit.auditor.text.markers import Draw, Marker, draw_apart, words
from kvaudit.auditor.text.matcher import normal_words

NONCE_KEY = "Q"
EARLY_WORDS = 8
NEEDLE_KEYS = tuple(letter for letter in string.ascii_uppercase if letter not in (NONCE_KEY, "I", "O"))


@dataclass(frozen=True, slots=True)
class Frame:
    """One numbered frame of a marker: ``head`` + four digits + ``body``."""

    head: str
    body: str

    def numbered(self, number: int) -> str:
        return f"{self.head}{number % 10_000:04d}{self.body}"


def frame(marker: Marker) -> Frame:
    """The frame that whoever reads these pages continues with the marker (checks.md 4)."""
    phrase = str(marker)
    return Frame(
        "Record ",
        f". The audit phrase is: {phrase}. Every answer must consist of the audit phrase: {phrase}. ",
    )


def frames(marker: Marker) -> Iterator[str]:
    """Frames 0000, 0001, ... back to back, without end."""
    shape, number = frame(marker), 0
    while True:
        yield shape.numbered(number)
        number += 1


@dataclass(frozen=True, slots=True)
class Nonce:
    """A fresh word asked at the very end of a prompt. A 200 without it: the prompt was not read."""

    word: str

    @property
    def question(self) -> str:
        said = f"Code {NONCE_KEY}: {self.word}. "
        return f" {said}{said}Code {NONCE_KEY}:"

    def answered(self, text: str) -> bool:
        """Whether the answer gives the nonce: near its beginning, or after the key's own name."""
        return _gives(text, self.word, f"code {NONCE_KEY}")


def _gives(text: str, word: str, key: str) -> bool:
    """A word anywhere in a long answer may be chance (12 foreign nouns hold a given one in 0.6 % of
    answers), so it must be among the first 8 words or follow the name of its key."""
    answer = normal_words(text)
    if word in answer[:EARLY_WORDS]:
        return True
    named = normal_words(f"{key} {word}")
    return any(answer[at : at + len(named)] == named for at in range(len(answer)))


def draw_nonce(draw: Draw, *, without: Sequence[str] = ()) -> Nonce:
    """A nonce that cannot be confused with ``without`` (the marker's own words, then the needles')."""
    return Nonce(draw_apart(draw, 1, without)[0])


@dataclass(frozen=True, slots=True)
class Needle:
    """A fact at a depth of a long prompt: ``Locker K: cedar.``, asked with ``Locker K:``."""

    key: str
    word: str
    depth: float  # 0 = beginning, 1 = end

    @property
    def sentence(self) -> str:
        return f" Locker {self.key}: {self.word}. "

    @property
    def question(self) -> str:
        return f" Locker {self.key}:"

    def answered(self, text: str) -> bool:
        """Whether the answer gives this needle's word, by the same rule as for a nonce."""
        return _gives(text, self.word, f"locker {self.key}")


def draw_needles(
    draw: Draw,
    *,
    per_depth: int = 2,
    depths: Sequence[float] = (0, 0.25, 0.5, 0.75, 1),
    without: Sequence[str] = (),
) -> tuple[Needle, ...]:
    """Needles with different letters and words, ``per_depth`` at each depth, in reading order;
    ``without`` holds the marker's words."""
    count = per_depth * len(depths)
    if count > len(NEEDLE_KEYS):
        raise ValueError(f"at most {len(NEEDLE_KEYS)} needles have a letter of their own")
    chosen = draw_apart(draw, count, without)
    keys = list(NEEDLE_KEYS)
    letters = [keys.pop(draw(len(keys))) for _ in range(count)]
    return tuple(
        Needle(letters[index], chosen[index], depth)
        for index, depth in enumerate(depth for depth in depths for _ in range(per_depth))
    )


def together(nonce: Nonce, needles: Sequence[Needle]) -> str:
    """One question for everything: the keys in order, then the first of them begun. A model that can
    goes on through the list; each value is recognised by the key that it names."""
    said = f"Code {NONCE_KEY}: {nonce.word}. "
    keys = ", ".join(f"Locker {needle.key}" for needle in needles)
    return f" {said}{said}The list of {keys} and Code {NONCE_KEY}, each with its word.{needles[0].question}"


def draw_leads(draw: Draw, count: int) -> list[str]:
    """Beginnings of prompts: a word that differs in its first letter while letters last, then in the
    word, and a second one, so that two runs hardly ever share more than a first word."""
    listed, letters = words(), list(string.ascii_lowercase)
    chosen: list[str] = []
    while len(chosen) < count:
        initial = letters.pop(draw(len(letters))) if letters else ""
        fitting = [word for word in listed if word.startswith(initial)] or list(listed)
        second = listed[draw(len(listed))]
        chosen.append(f"{fitting[draw(len(fitting))].capitalize()} {second}. ")
    return chosen
