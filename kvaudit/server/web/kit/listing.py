"""One page of a list that the database sorts by a unique column; positions are values of that column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

PAGE_SIZE = 100


@dataclass(frozen=True, slots=True)
class Cut:
    """``before`` and ``after`` are the positions that the pages on either side continue from, "" at an end.
    Nothing is counted."""

    rows: Sequence[Any]
    before: str = ""
    after: str = ""
    total: None = None


def cut(
    rows: QuerySet[Any],
    column: str,
    *,
    after: str = "",
    before: str = "",
    newest_first: bool = False,
    size: int = PAGE_SIZE,
) -> Cut:
    """The page after (or before) a position; one query. A position whose row has gone still has a place."""
    backwards = bool(before)
    descending = newest_first != backwards
    if position := before or after:
        rows = rows.filter(**{f"{column}__{'lt' if descending else 'gt'}": position})
    found = list(rows.order_by(f"-{column}" if descending else column)[: size + 1])
    more, found = len(found) > size, found[:size]
    if backwards:
        found.reverse()
    if not found:
        return Cut([])
    first, last = (str(getattr(each, column)) for each in (found[0], found[-1]))
    return Cut(
        rows=found,
        before=first if (more if backwards else after) else "",
        after=last if (more or backwards) else "",
    )


def number(text: str | None) -> str:
    """A position that is a row's number; "" for anything that is none."""
    return text if text and text.isascii() and text.isdigit() and len(text) < 19 else ""
