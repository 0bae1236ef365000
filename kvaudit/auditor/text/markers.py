"""Draws markers: six plain English nouns that no honest answer contains by chance.

A marker is drawn from a fixed list of 2,048 words with `secrets` (64 bits). Words survive casing,
markdown and digit grouping on the way out, and cost 6 to 10 tokens where a UUID costs 35. The list
(words.txt) holds concrete nouns of 4 to 8 letters, chosen from the noun index of WordNet 3.1 by
frequency in spoken English, without names, verbs and words that could offend in a report.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from kvaudit.auditor.text.wordings import FRAME_WORDS

WORDS_IN_MARKER = 6

Draw = Callable[[int], int]
"""Draws a whole number in [0, n); `secrets.randbelow`, or a seeded one for a reproduction."""


@cache
def words() -> tuple[str, ...]:
    """The fixed word list, sorted, 2,048 long."""
    return tuple(files("kvaudit.auditor.text").joinpath("words.txt").read_text("ascii").split())


def seeded(seed: int | None) -> Draw:
    """The draw of a run: unpredictable without a seed, repeatable with one."""
    return secrets.randbelow if seed is None else random.Random(seed).randrange  # noqa: S311


@dataclass(frozen=True, slots=True)
class Marker:
    """Six different words, and whose they are. ``request`` numbers the request that carried it
    within its run; a *decoy* is never sent anywhere, so meeting one means the matcher is wrong."""

    words: tuple[str, ...]
    tenant: str = ""
    request: str = ""
    decoy: bool = False

    def __str__(self) -> str:
        return " ".join(self.words)


def as_measure(marker: Marker) -> dict[str, Any]:
    """How a live marker is kept in a result; `live` reads it back."""
    return {"words": str(marker), "tenant": marker.tenant, "request": marker.request, "decoy": marker.decoy}


def live(kept: Iterable[Mapping[str, Any]]) -> tuple[Marker, ...]:
    """Markers out of what `as_measure` wrote, for the next run's matcher; what is no marker is left out.
    Who calls this chooses the results of the last 30 days."""
    found = []
    for one in kept:
        said = tuple(str(one.get("words", "")).split())
        if len(said) == WORDS_IN_MARKER:
            found.append(
                Marker(
                    said, str(one.get("tenant", "")), str(one.get("request", "")), one.get("decoy") is True
                )
            )
    return tuple(found)


def draw_words(draw: Draw, count: int, without: Sequence[str] = ()) -> tuple[str, ...]:
    """``count`` different words of the list, none of ``without``."""
    pool, barred = words(), set(without)
    chosen: list[str] = []
    while len(chosen) < count:
        word = pool[draw(len(pool))]
        if word not in barred:
            chosen.append(word)
            barred.add(word)
    return tuple(chosen)


TRIES = 500
"""Draws until words that cannot be confused are found; then any will do."""


def _grams(word: str, before: str) -> set[str]:
    """What a model that sees three characters sees of a word and what stands before it."""
    seen = before + word
    return {seen[at : at + 3] for at in range(len(seen) - 2)}


def draw_apart(draw: Draw, count: int, without: Sequence[str] = (), *, before: str = ": ") -> tuple[str, ...]:
    """Words that share no three letters with each other, with ``without`` or with the frames, and where
    they follow a colon no initial either: a short-sighted model that copies them is never led astray
    half way through one (measured on a real one that sees three characters)."""
    known = set().union(*(_grams(word, " ") for word in FRAME_WORDS))
    known = known.union(*(_grams(word, before) for word in without))
    chosen: list[str] = []
    for _ in range(TRIES * count):
        if len(chosen) == count:
            break
        word = draw_words(draw, 1, (*without, *chosen))[0]
        grams = _grams(word, before)
        if len(grams) == len(before) + len(word) - 2 and not grams & known:
            chosen.append(word)
            known |= grams
    return (*chosen, *draw_words(draw, count - len(chosen), (*without, *chosen)))


def draw_marker(draw: Draw, *, tenant: str = "", request: str = "", decoy: bool = False) -> Marker:
    """A fresh marker of words that cannot be confused with each other (63 of the list's 66 bits stay)."""
    return Marker(draw_apart(draw, WORDS_IN_MARKER, before=" "), tenant, request, decoy)
