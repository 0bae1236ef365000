"""The canary matrix: lengths against rounds, how each request ended and where a marker surfaced.

Geometry and counts; templates/runs/matrix.html draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kvaudit.server.web.kit.measure_values import count, rows, tokens
from kvaudit.server.web.runs.marker_hits import pages_of
from kvaudit.server.web.runs.outcome_icons import LEAKED, Shape, shape_of

SQUARE, LEFT, TOP = 18, 192, 22  # pixels
MOST_ROUNDS = 200
MOST_ROWS = 30
MOST_PAGES = 12
MOST_STRATA = 400


@dataclass(frozen=True, slots=True)
class OutcomeSquare:
    """``anchor`` is the fragment of its evidence, "" where none is kept."""

    x: int
    y: int
    shape: Shape
    leak: bool
    said: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Stratum:
    """Requests of one kind, way and tail. ``missed``: answered without what their prompt asked for."""

    cell: str
    route: str
    tail: str
    asked: int
    accepted: int
    read: int
    missed: int
    hits: int


@dataclass(frozen=True, slots=True)
class MatrixLine:
    """One kind of request, of up to ``tokens``; from ``shortest`` on where the lengths were drawn, else None. ``pages``
    are ordinals of the planted text's pages that surfaced, about."""

    cell: str
    tokens: int | None
    shortest: int | None
    y: int
    squares: Sequence[OutcomeSquare]
    asked: int
    counts: Sequence[int]  # in the order of `Matrix.outcomes`
    hits: int
    pages: Sequence[int]
    why: str  # these are unknown although a marker surfaced
    anchor: str

    @property
    def pages_said(self) -> str:
        shown = ", ".join(f"{page:,}" for page in self.pages[:MOST_PAGES])
        return shown + (f" and {len(self.pages) - MOST_PAGES} more" if len(self.pages) > MOST_PAGES else "")


@dataclass(frozen=True, slots=True)
class Matrix:
    """``rounds`` 0 = this result does not say what each round came to: then there is a table only."""

    rows: Sequence[MatrixLine]
    outcomes: Sequence[str]
    rounds: int
    width: int
    height: int
    ticks: Sequence[tuple[int, int]]  # (x, number of the round, from 1)
    strata: Sequence[Stratum] = ()

    @property
    def reasons(self) -> list[str]:
        """Why pages are unknown, each once."""
        return list(dict.fromkeys(row.why for row in self.rows if row.why))

    @property
    def linked(self) -> bool:
        return any(row.anchor for row in self.rows)

    @property
    def sentence(self) -> str:
        """What the drawing shows, for those who do not see it."""
        hits = sum(row.hits for row in self.rows)
        where = ", ".join(f"{row.cell} ({row.hits})" for row in self.rows if row.hits)
        surfaced = (
            f"markers of other requests surfaced {hits} times: {where}" if hits else "no marker surfaced"
        )
        return f"{len(self.rows)} lengths in {self.rounds} rounds; {surfaced}"


Anchors = Callable[[str, int], str]
"""(name of a request, round from 1 or 0 for all) -> fragment of its evidence, "" for none."""


def matrix_of(measures: Mapping[str, Any], anchors: Anchors = lambda name, number: "") -> Matrix | None:
    """None where nothing was asked."""
    found = rows(measures.get("matrix"))[:MOST_ROWS]
    if not found:
        return None
    hits = _hits(measures)
    surfaced = rows(measures.get("hits"))
    outcomes = list(dict.fromkeys(str(name) for each in found for name in _outcomes(each)))
    shown = []
    rounds = 0
    for number, each in enumerate(found):
        cell = str(each.get("cell") or "")
        stored = each.get("rounds")
        by_round = stored if isinstance(stored, list) else []
        y = TOP + number * SQUARE
        squares = _squares(by_round[:MOST_ROUNDS], hits.get(cell, {}), y, partial(anchors, cell))
        rounds = max(rounds, len(squares))
        counts = _outcomes(each)
        pages = sorted({page for at in hits.get(cell, {}).values() for page in at})
        shown.append(
            MatrixLine(
                cell=cell,
                tokens=tokens(each.get("tokens")),
                shortest=_shortest(each),
                y=y,
                squares=squares,
                asked=sum(counts.values()),
                counts=[counts.get(name, 0) for name in outcomes],
                hits=count(each.get("hits")) or 0,
                pages=pages,
                why=_why([hit for hit in surfaced if hit.get("cell") == cell]),
                anchor=anchors(cell, 0),
            )
        )
    ticks = [(LEFT + at * SQUARE, at + 1) for at in range(0, rounds, 10)]
    width, height = LEFT + rounds * SQUARE + 8, TOP + len(shown) * SQUARE + 6
    return Matrix(shown, outcomes, rounds, width, height, ticks, _strata(found)[:MOST_STRATA])


def _shortest(row: Mapping[str, Any]) -> int | None:
    """None where all requests of the row had one length."""
    least = tokens(row.get("shortest"))
    return None if least == tokens(row.get("tokens")) else least


def _strata(found: Sequence[Mapping[str, Any]]) -> list[Stratum]:
    return [
        Stratum(
            cell=str(each.get("cell") or ""),
            route=str(one.get("route") or ""),
            tail=str(one.get("tail") or ""),
            **{name: count(one.get(name)) or 0 for name in ("asked", "accepted", "read", "missed", "hits")},
        )
        for each in found
        for one in rows(each.get("strata"))
    ]


def _why(hits: Sequence[Mapping[str, Any]]) -> str:
    return pages_of(hits)[1] if hits else ""


def _outcomes(row: Mapping[str, Any]) -> dict[str, int]:
    stored = row.get("outcomes")
    return {str(name): count(n) or 0 for name, n in stored.items()} if isinstance(stored, Mapping) else {}


def _hits(measures: Mapping[str, Any]) -> dict[str, dict[int, list[int]]]:
    """Cell -> round -> page ordinals."""
    found: dict[str, dict[int, list[int]]] = {}
    for hit in rows(measures.get("hits")):
        at = count(hit.get("round"))
        if at is None:
            continue
        stored = hit.get("page_ordinals")
        pages = (
            [page for item in stored if (page := count(item)) is not None] if isinstance(stored, list) else []
        )
        found.setdefault(str(hit.get("cell") or ""), {}).setdefault(at, []).extend(pages)
    return found


def _squares(
    by_round: Sequence[Any], hits: Mapping[int, Sequence[int]], y: int, anchor: Callable[[int], str]
) -> list[OutcomeSquare]:
    squares = []
    for at, outcome in enumerate(by_round):
        leak = at in hits
        shape = LEAKED if leak else shape_of(outcome)
        pages = (
            f", about page {', '.join(str(page) for page in hits[at][:MOST_PAGES])}"
            if leak and hits[at]
            else ""
        )
        said = f"round {at + 1}: {shape.said}{pages}"
        squares.append(OutcomeSquare(LEFT + at * SQUARE, y, shape, leak, said, anchor(at + 1)))
    return squares
