"""Draws the lengths of a run's rounds. A hole at lengths that are never sent stays open for ever: damage was tied to
the residue of a length modulo the page (vllm#50749: 21 of 31 at residues 0 to 8, none of 17 at 9 to 15), to bands and
to edges (tt-metal#54413), and a run of constants never met it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kvaudit.auditor.text.markers import Draw

BOUNDARY, EDGE, LOG, UNIFORM = "boundary", "edge", "log-uniform", "uniform"
SHARES = {BOUNDARY: 6, EDGE: 15, LOG: 30, UNIFORM: 9}
"""Of 60 rounds. Log-uniform alone never finds a leak at N - 1, uniform alone none at short lengths."""

QUALIFYING = {BOUNDARY: 54, EDGE: 3, LOG: 3, UNIFORM: 0}
"""Of 60 rounds before a replica takes traffic: what beside others' requests cannot be shown in a month."""

CHAINED_FROM = 1 << 18
"""Tokens of N from which a night of rounds costs more than anybody spends (80 N): then prompts form a chain, each the
victim of the next, and a night costs 6.8 N."""

CHAIN_BOUNDARY, CHAIN_LONG, CHAIN_EDGES, CHAIN_SHORT = 2, 5, 11, 29
"""Prompts of a chain: at the boundary, from an eighth of N on, at edges and log-uniform below that."""

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
    qualifying: bool = False

    @property
    def chained(self) -> bool:
        return self.top >= CHAINED_FROM

    @property
    def planned(self) -> int:
        """Rounds of a whole run."""
        chain = CHAIN_BOUNDARY + CHAIN_LONG + CHAIN_EDGES + CHAIN_SHORT
        return chain if self.chained and not self.qualifying else sum(SHARES.values())

    @property
    def shortest(self) -> int:
        return min(SHORTEST + self.added, self.longest)

    @property
    def boundary(self) -> tuple[int, ...]:
        """In turn. Of those that qualify every fifth is the very last, which has no room for a phrase."""
        if self.qualifying:
            return (self.roomy, self.longest, self.roomy, self.longest, self.top)
        return tuple(dict.fromkeys((self.longest, self.top, self.roomy)))


def counts(rounds: int, shares: Mapping[str, int] = SHARES) -> dict[str, int]:
    """How many of so many rounds each stratum has, in the proportions of sixty."""
    whole = sum(shares.values())
    found = {name: rounds * share // whole for name, share in shares.items()}
    rest = sorted(shares, key=lambda name: -(rounds * shares[name] % whole))
    for name in rest[: rounds - sum(found.values())]:
        found[name] += 1
    return found


def draw_lengths(draw: Draw, rounds: int, span: Span) -> list[DrawnLength]:
    """The lengths of a run in the order they are sent, the boundary first: what is found there needs no more. Within a
    stratum they are spread evenly from a start that is drawn, so that another night sends other ones."""
    if span.chained and not span.qualifying:
        return _draw_chain(draw, rounds, span)
    number = counts(rounds, QUALIFYING if span.qualifying else SHARES)
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


def _draw_chain(draw: Draw, rounds: int, span: Span) -> list[DrawnLength]:
    """Lengths that fall, so that each prompt covers the pages that the next may read. Where the budget has room for
    ``rounds`` alone, the shortest: each is worth as much as a long one."""
    start, eighth = draw(FINE) / FINE, max(span.shortest, span.top // 8)
    below = replace(span, longest=min(span.longest, eighth), top=min(span.top, eighth))
    above = replace(span, added=max(0, eighth - SHORTEST))
    found = [DrawnLength(BOUNDARY, span.roomy)] * CHAIN_BOUNDARY
    found += [DrawnLength(LOG, _log(share, above)) for share in _even(CHAIN_LONG, start)]
    found += [DrawnLength(EDGE, tokens) for tokens in _edges(draw, CHAIN_EDGES, below)]
    found += [DrawnLength(LOG, _log(share, below)) for share in _even(CHAIN_SHORT, start)]
    found.sort(key=lambda one: -one.tokens)
    return found[max(0, len(found) - rounds) :]


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
