"""The boundary strip of a `rejection` result: one column per length, one shape per request, and where N and C
lie. Geometry only; templates/runs/strip.html draws it with attributes, as the policy allows no inline style."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvaudit.server.web.kit.measure_values import count, rows, tokens
from kvaudit.server.web.runs.outcome_icons import ANSWERED, FAULTY, REFUSED, VOID, WRONG, Shape

COLUMN, TOP, SHAPE, MOST_SHAPES = 84, 34, 20, 5  # pixels; shapes of one column before they become a number
LABEL = 120  # "C = 1,048,576"
MOST_RUNGS = 60

# measure -> shape, worst first: what must be seen stands lowest, next to the length
_COUNTED = (
    ("without_nonce", WRONG),
    ("empty", FAULTY),
    ("cut", FAULTY),
    ("hidden", FAULTY),
    ("failed", FAULTY),
    ("timed_out", FAULTY),
    ("accepted", ANSWERED),
    ("refused", REFUSED),
)


@dataclass(frozen=True, slots=True)
class PlacedOutcome:
    shape: Shape
    x: float
    y: float
    times: int = 1  # above 1: this shape stands for so many requests


@dataclass(frozen=True, slots=True)
class Rung:
    """One length. ``zone``: "below" N, "refuse" (from N up to C), "beyond" C, "" where N is unknown.
    ``anchor`` is the fragment of its evidence, "" where none is kept."""

    name: str
    tokens: int
    zone: str
    x: int
    middle: float
    placed: Sequence[PlacedOutcome]
    counts: Mapping[str, int]
    status: int | None
    anchor: str


@dataclass(frozen=True, slots=True)
class LimitLine:
    """N or C between two columns."""

    name: str
    tokens: int
    x: int


@dataclass(frozen=True, slots=True)
class Strip:
    width: int
    height: int
    foot: int  # where the names of the lengths begin
    rungs: Sequence[Rung]
    lines: Sequence[LimitLine]
    column: int = COLUMN
    top: int = TOP

    @property
    def linked(self) -> bool:
        return any(rung.anchor for rung in self.rungs)

    @property
    def sentence(self) -> str:
        """What the drawing shows, for those who do not see it."""
        parts = []
        for line in self.lines:
            parts.append(f"{line.name} is {line.tokens:,} tokens")
        for rung in self.rungs:
            said = [f"{n} {name.replace('_', ' ')}" for name, n in rung.counts.items() if n]
            parts.append(f"{rung.name}, {rung.tokens:,} tokens: {', '.join(said) or 'nothing learnt'}")
        return "; ".join(parts)


def strip_of(measures: Mapping[str, Any], anchors: Callable[[str], str] = lambda name: "") -> Strip | None:
    """None where no length was asked. ``anchors``: name of a length -> fragment of its evidence."""
    found = []
    for row in rows(measures.get("rungs"))[:MOST_RUNGS]:
        length = tokens(row.get("tokens"))
        if length is not None:
            found.append((length, row))
    if not found:
        return None
    found.sort(key=lambda pair: pair[0])
    limit, context = tokens(measures.get("first_rejected_tokens")), tokens(measures.get("context_tokens"))
    counted = [_counts(rung) for _, rung in found]
    deepest = max(len(_stack(counts)) for counts in counted)
    foot = TOP + max(deepest, 1) * (SHAPE + 4) + 10
    rungs = [
        Rung(
            name=str(each.get("name") or ""),
            tokens=length,
            zone=_zone(length, limit, context),
            x=column * COLUMN,
            middle=column * COLUMN + COLUMN / 2,
            placed=_placed(counts, column, foot),
            counts=counts,
            status=count(each.get("status")),
            anchor=anchors(str(each.get("name") or "")),
        )
        for column, ((length, each), counts) in enumerate(zip(found, counted, strict=True))
    ]
    lines = [
        LimitLine(name, at, sum(length < at for length, _ in found) * COLUMN)
        for name, at in (("N", limit), ("C", context))
        if at is not None
    ]
    width = max([len(rungs) * COLUMN, *(line.x + LABEL for line in lines)])
    return Strip(width, foot + 44, foot, rungs, lines)


def _counts(rung: Mapping[str, Any]) -> dict[str, int]:
    """How often each ending was seen; what remains of the trials is void."""
    counts = {name: count(rung.get(name)) or 0 for name, _ in _COUNTED}
    counts["void"] = max(0, (count(rung.get("trials")) or 0) - sum(counts.values()))
    return counts


def _stack(counts: Mapping[str, int]) -> list[tuple[Shape, int]]:
    """Shapes from the bottom up; many of a kind become one with a number."""
    by_shape: dict[Shape, int] = {}
    for name, shape in (*_COUNTED, ("void", VOID)):
        if counts[name]:
            by_shape[shape] = by_shape.get(shape, 0) + counts[name]
    if sum(by_shape.values()) > MOST_SHAPES:
        return list(by_shape.items())
    return [(shape, 1) for shape, times in by_shape.items() for _ in range(times)]


def _placed(counts: Mapping[str, int], column: int, foot: int) -> list[PlacedOutcome]:
    x = column * COLUMN + (COLUMN - SHAPE) / 2
    return [
        PlacedOutcome(shape, x, foot - 8 - (row + 1) * (SHAPE + 4), times)
        for row, (shape, times) in enumerate(_stack(counts))
    ]


def _zone(length: int, limit: int | None, context: int | None) -> str:
    if limit is None:
        return ""
    if length < limit:
        return "below"
    return "refuse" if context is None or length < context else "beyond"
