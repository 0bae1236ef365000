"""One page of a list that is sorted in memory: what a page shows cannot be sorted by the database."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Slice:
    """One page of a sorted list: keyset positions, "" where there is nothing that way."""

    rows: Sequence[Any]
    first: int
    last: int
    total: int
    before: str
    after: str


class Place(Protocol):
    """Where somebody stands in the list: its order, and a position that the page follows or precedes."""

    @property
    def sort(self) -> str: ...
    @property
    def after(self) -> str: ...
    @property
    def before(self) -> str: ...


def cut(rows: Sequence[Row], position: Callable[[Row, str], str], place: Place, size: int) -> Slice:
    """The page after (or before) a position. A position whose row has gone still has a place. ``position`` gives a
    row's unique key in an order, which ``rows`` are in."""
    keys = [position(row, place.sort) for row in rows]
    if place.before:
        end = bisect_left(keys, place.before)
        start = max(0, end - size)
    else:
        start = bisect_right(keys, place.after) if place.after else 0
        end = min(len(rows), start + size)
    shown = rows[start:end]
    return Slice(
        rows=shown,
        first=start + 1 if shown else 0,
        last=end,
        total=len(rows),
        before=keys[start] if shown and start else "",
        after=keys[end - 1] if shown and end < len(rows) else "",
    )
