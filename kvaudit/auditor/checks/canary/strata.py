"""Draws the lengths of a run's rounds. A hole at lengths that are never sent stays open for ever: damage was tied to
the residue of a length modulo the page (vllm#50749: 21 of 31 at residues 0 to 8, none of 17 at 9 to 15), to bands and
to edges (tt-metal#54413), and a run of constants never met it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from kvaudit.auditor.text.markers import Draw

BOUNDARY, EDGE, LOG, UNIFORM = "boundary", "edge", "log-uniform", "uniform"
SHARES = {BOUNDARY: 6, EDGE: 15, LOG: 30, UNIFORM: 9}
"""Of 60 rounds. Log-uniform alone never finds a leak at N - 1, uniform alone none at short lengths."""

SHORTEST = 128
USUAL_SIZES = (256, 512, 1_024, 2_048)
GROWTH = 1.15
"""Of a size's multiples, so that they are spread like the lengths."""

LEAST_RESIDUES = 16
FINE = 1_000_000
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class DrawnLength:
    """Tokens of a round's request, and the class of lengths that it stands for."""

    stratum: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Span:
    """From `SHORTEST` to ``longest``, the longest with room for an answer; ``roomy`` is the longest with room for a
    phrase, ``top`` the longest that may be sent. ``sizes``: of chunks, batches and windows, in tokens."""

    longest: int
    roomy: int
    top: int
    page: int
    sizes: tuple[int, ...] = ()
    added: int = 0  # tokens of the target's own in every prompt

    @property
    def shortest(self) -> int:
        return min(SHORTEST + self.added, self.longest)

    @property
    def boundary(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((self.longest, self.top, self.roomy)))


def counts(rounds: int) -> dict[str, int]:
    """How many of so many rounds each stratum has, in the proportions of sixty."""
    whole = sum(SHARES.values())
    found = {name: rounds * share // whole for name, share in SHARES.items()}
    rest = sorted(SHARES, key=lambda name: -(rounds * SHARES[name] % whole))
    for name in rest[: rounds - sum(found.values())]:
        found[name] += 1
    return found


def draw_lengths(draw: Draw, rounds: int, span: Span) -> list[DrawnLength]:
    """The lengths of a run in the order they are sent, the boundary first: what is found there needs no more. Within a
    stratum they are spread evenly from a start that is drawn, so that another night sends other ones."""
    number = counts(rounds)
    start, turn = draw(FINE) / FINE, draw(FINE)
    residues = shuffled(draw, range(max(span.page, LEAST_RESIDUES)))
    boundary = [
        DrawnLength(BOUNDARY, span.boundary[at % len(span.boundary)]) for at in range(number[BOUNDARY])
    ]
    edges = [DrawnLength(EDGE, tokens) for tokens in _edges(draw, number[EDGE], span)]
    log = [
        DrawnLength(
            LOG, _on_residue(_log(share, span), residues[(at + turn) % len(residues)], span, len(residues))
        )
        for at, share in enumerate(_even(number[LOG], start))
    ]
    uniform = [
        DrawnLength(
            UNIFORM,
            _on_residue(_linear(share, span), residues[(5 * at + turn) % len(residues)], span, len(residues)),
        )
        for at, share in enumerate(_even(number[UNIFORM], start))
    ]
    return boundary[:1] + shuffled(draw, [*boundary[1:], *edges, *log, *uniform])


def edge_lengths(span: Span) -> list[list[int]]:
    """For each size the lengths one below, at and one above its multiples."""
    found = []
    for size in dict.fromkeys((*span.sizes, span.page, *USUAL_SIZES)):
        lengths, multiple = [], 1
        while size > 1 and size * multiple < span.top:
            lengths += [
                size * multiple + beside
                for beside in (-1, 0, 1)
                if span.shortest <= size * multiple + beside <= span.top
            ]
            multiple = max(multiple + 1, int(multiple * GROWTH))
        if lengths:
            found.append(lengths)
    return found


def _edges(draw: Draw, count: int, span: Span) -> list[int]:
    """Sizes in turn, beginning with one that is drawn."""
    sizes = edge_lengths(span) or [[span.shortest]]
    first = draw(len(sizes))
    chosen = [sizes[(first + at) % len(sizes)] for at in range(count)]
    return [lengths[draw(len(lengths))] for lengths in chosen]


def _even(count: int, start: float) -> list[float]:
    return [(at + start) / count for at in range(count)]


def _log(share: float, span: Span) -> int:
    return int(span.shortest * (span.longest / span.shortest) ** share)


def _linear(share: float, span: Span) -> int:
    return span.shortest + int((span.longest - span.shortest) * share)


def _on_residue(tokens: int, residue: int, span: Span, modulus: int) -> int:
    return max(span.shortest, min(span.longest, tokens - tokens % modulus + residue))


def shuffled(draw: Draw, items: Sequence[Item]) -> list[Item]:
    """The items in an order that is drawn."""
    rest = list(items)
    return [rest.pop(draw(len(rest))) for _ in range(len(rest))]
