"""Lays out the rounds of a run: which length, way to ask, tenants and tail each has.

An orthogonal array by minimisation: each round takes the combination whose pairs of levels were asked least so far,
so that after few rounds every tail was asked in every way by every pair of tenants as evenly as the number allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from kvaudit.auditor.checks.canary.strata import BOUNDARY, DrawnLength, shuffled
from kvaudit.auditor.checks.ways import LONGEST_TEXT, Way
from kvaudit.auditor.engines.completion import Mode
from kvaudit.auditor.text.markers import Draw

NONCE, PHRASE, WINDOW = "nonce", "phrase", "phrase in a window"
TAILS = (PHRASE, NONCE)
PHRASES = (PHRASE, WINDOW)
"""Kinds of prompts that are asked for their phrase: frames everywhere, or in a window at a drawn depth."""

SURFACING = "surfacing"
"""Name of the short prompts before the rounds."""

QUALIFYING = (PHRASE, NONCE, PHRASE, WINDOW, NONCE, PHRASE)
"""Tails in turn of rounds that qualify a build: most that a window's prompt holds is no phrase, so a few must do."""


@dataclass(frozen=True, slots=True)
class Round:
    """``victim`` plants, ``reader`` reads last; ``tail`` is the reader's, and that of every second request."""

    number: int
    length: DrawnLength
    way: Way
    victim: str
    reader: str
    tail: str
    idle: float = 0.0  # seconds before it
    chained: bool = False  # the round before it is its victim

    def tenant(self, at: int) -> str:
        """Whose the round's request number ``at`` is: the victim's, the reader's, and so on in turn."""
        return self.reader if at % 2 else self.victim

    def tail_of(self, at: int) -> str:
        """Nonce and phrase alternate, so that each kind of request has either in half of the rounds."""
        return (NONCE if self.tail == NONCE else PHRASE) if at % 2 else TAILS[self.tail != NONCE]


def lay_out(
    draw: Draw,
    lengths: Sequence[DrawnLength],
    modes: Sequence[Mode],
    tenants: Sequence[str],
    idle: float = 0.0,
    *,
    chained: bool = False,
    qualifying: bool = False,
) -> list[Round]:
    """One round a length. ``idle``: seconds that may pass in silence, in all. Two of three rounds that qualify a build
    ask for their phrase, since a nonce adds nothing; so do the few of a chain at the boundary."""
    all_pairs = pairs = [(victim, reader) for victim in tenants for reader in tenants if victim != reader]
    waits = draw_waits(draw, len(lengths), idle)
    seen: Counter[tuple[Any, Any]] = Counter()
    rounds: list[Round] = []
    for number, length in enumerate(lengths):
        fitting = [mode for mode in modes if mode.takes_ids or length.tokens <= LONGEST_TEXT] or list(modes)
        tails: Sequence[str] = (QUALIFYING[number % len(QUALIFYING)],) if qualifying else TAILS
        kinds: Sequence[str] = (PHRASE,) if qualifying else PHRASES
        if chained:
            pairs = [pair for pair in all_pairs if not rounds or pair[0] == rounds[-1].reader]
            tails = (PHRASE,) if length.stratum == BOUNDARY else tails
        mode, stream, (victim, reader), tail, kind, _ = least_asked(
            draw, seen, (fitting, (True, False), pairs, tails, kinds, (length.stratum,))
        )
        tail = kind if tail == PHRASE else tail
        way = Way(mode, stream)
        rounds.append(Round(number, length, way, victim, reader, tail, waits[number], chained))
    return rounds


def least_asked(
    draw: Draw, seen: Counter[tuple[Any, Any]], factors: Sequence[Sequence[Any]]
) -> tuple[Any, ...]:
    """The combination of one level of each factor whose pairs were asked least; noted in ``seen``."""
    choices = shuffled(draw, list(product(*factors)))
    chosen = min(choices, key=lambda levels: sum(seen[pair] ** 2 for pair in _pairs(levels)))
    seen.update(_pairs(chosen))
    return chosen


def _pairs(levels: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return combinations(enumerate(levels), 2)


LONGEST_DWELL, SHORTEST_DWELL = 300.0, 0.5
"""Seconds. What expires while nobody asks (leases, registrations, connections) did so within minutes."""

GAPS = 0.2
"""Of the time that may pass in silence; dwells have the rest."""

DWELLING = 5
"""One round of so many is preceded by a dwell."""

FINE = 1_000_000


def draw_waits(draw: Draw, rounds: int, idle: float) -> list[float]:
    """Seconds before each round, in all at most ``idle``: a dwell, log-uniform, before one of five; else a gap that
    breaks the rhythm, since rounds of one period can miss a FIFO pool's own for ever."""
    if idle <= 0 or not rounds:
        return [0.0] * rounds
    dwelling = set(shuffled(draw, range(1, rounds))[: rounds // DWELLING])
    shares = [draw(FINE) / FINE for _ in range(rounds)]
    waits = [share * min(1.0, GAPS * idle / rounds) for share in shares]
    left = (1 - GAPS) * idle
    for number in sorted(dwelling):
        wished = SHORTEST_DWELL * (LONGEST_DWELL / SHORTEST_DWELL) ** shares[number]
        waits[number] = min(wished, left)
        left -= waits[number]
    return waits
