"""Lists: filters out of an address, and one page of the rows that they leave.

A page declares its filters as a class::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Filters(listing.Filters):
        q: str = text()
        state: str = choice(("active", "inactive"))
        after: str = position()
        before: str = position()

and asks ``Filters.from_query(request.GET)``. What makes no sense narrows nothing, and ``ignored`` says why.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, Self, TypeVar

from django.db.models import QuerySet

from kvaudit.server.web.kit import untrusted
from kvaudit.server.web.kit.times import parse_moment

PAGE_SIZE = 100
LONGEST = 300
"""Characters of a filter that are looked at."""

Row = TypeVar("Row")
Read = Callable[[str, str], tuple[Any, str]]
"""Name and text of a parameter -> its value, and why it was ignored ("" where it was not)."""


@dataclass(frozen=True, slots=True)
class _Parameter:
    read: Read
    narrows: bool
    name: str = ""  # in the address; "" = as the field is called


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The state of a list, as it stands in the address. ``ignored``: field -> a sentence."""

    ignored: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> Self:
        values, ignored = {}, {}
        for each in fields(cls):
            if parameter := each.metadata.get("parameter"):
                name = parameter.name or each.name
                values[each.name], why = parameter.read(name, query.get(name) or "")
                if why:
                    ignored[each.name] = why
        return cls(**values, ignored=ignored)

    @property
    def narrowing(self) -> dict[str, Any]:
        """What leaves rows out: field -> value. Neither an order nor a position does."""
        asked = (each for each in fields(self) if (how := each.metadata.get("parameter")) and how.narrows)
        return {each.name: value for each in asked if (value := getattr(self, each.name))}

    @property
    def active(self) -> bool:
        return bool(self.narrowing)


def parsed(read: Read, default: Any = "", *, narrows: bool = True, name: str = "") -> Any:
    """A field with a reading of its own."""
    return field(default=default, metadata={"parameter": _Parameter(read, narrows, name)})


def text() -> Any:
    """Words to search for."""
    return parsed(_text)


def choice(known: Iterable[str], default: str = "", *, narrows: bool = True) -> Any:
    """One of the ``known`` values; anything else is the default."""
    values = [str(each) for each in known]

    def read(name: str, given: str) -> tuple[str, str]:
        value, why = _text(name, given)
        if not value or value in values:
            return value or default, why
        shown = untrusted.plain(value, 60)
        return default, f"There is no such {name} as “{shown}”: it is one of {', '.join(values)}."

    return parsed(read, default, narrows=narrows)


def flag() -> Any:
    """``yes``, or not."""
    return parsed(lambda _, given: (given == "yes", ""), False)


def moment() -> Any:
    """A date or a time (`parse_moment`), as it was typed."""

    def read(name: str, given: str) -> tuple[str, str]:
        value, why = _text(name, given)
        if not value or parse_moment(value) is not None:
            return value, why
        return "", f"“{untrusted.plain(value, 60)}” is no date: write 2026-09-01 or 2026-09-01T14:30."

    return parsed(read)


def number(name: str = "") -> Any:
    """The key of a row that a page lies below; None for anything that is none."""

    def read(_: str, given: str) -> tuple[int | None, str]:
        shown = _digits(given)
        return (int(shown) if shown else None), ""

    return parsed(read, None, narrows=False, name=name)


def position(*, numeric: bool = False) -> Any:
    """Where a page begins or ends: ``after`` and ``before``. ``numeric`` where the column is a number."""
    return parsed(
        lambda _, given: (_digits(given) if numeric else untrusted.query_text(given, LONGEST), ""),
        narrows=False,
    )


def _text(name: str, given: str) -> tuple[str, str]:
    value = untrusted.query_text(given, LONGEST)
    if value or not given.strip():
        return value, ""
    return "", f"“{untrusted.plain(given, 60)}” is nothing to filter by ({name})."


def _digits(given: str) -> str:
    """ "" for what is no number of PostgreSQL's bigint."""
    shown = untrusted.query_text(given, 20)
    return shown if shown.isascii() and shown.isdigit() and int(shown) < 2**63 else ""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, for kit/pager.html. ``before`` and ``after`` are the positions that the pages on either
    side continue from, "" at an end. ``first``, ``last`` and ``total`` are known where all rows were in memory."""

    rows: Sequence[Any]
    before: str = ""
    after: str = ""
    first: int = 0
    last: int = 0
    total: int | None = None


class Place(Protocol):
    """A position that the page follows, or one that it precedes; "" for neither."""

    @property
    def after(self) -> str: ...
    @property
    def before(self) -> str: ...


def keyset_page(
    rows: QuerySet[Any], column: str, place: Place, *, newest_first: bool = False, size: int = PAGE_SIZE
) -> Page:
    """Of rows that the database sorts by a unique ``column``, whose values are the positions; one query, and nothing
    is counted. A position whose row has gone still has a place."""
    backwards = bool(place.before)
    descending = newest_first != backwards
    if at := place.before or place.after:
        rows = rows.filter(**{f"{column}__{'lt' if descending else 'gt'}": at})
    found = list(rows.order_by(f"-{column}" if descending else column)[: size + 1])
    more, found = len(found) > size, found[:size]
    if backwards:
        found.reverse()
    if not found:
        return Page([])
    first, last = (str(getattr(each, column)) for each in (found[0], found[-1]))
    return Page(
        rows=found,
        before=first if (more if backwards else place.after) else "",
        after=last if (more or backwards) else "",
    )


def sorted_page(
    rows: Sequence[Row], key: Callable[[Row], str], place: Place, *, size: int = PAGE_SIZE
) -> Page:
    """Of rows in memory, for orders that the database does not know. ``key`` is unique, and ``rows`` are sorted by it.
    A position whose row has gone still has a place."""
    keys = [key(row) for row in rows]
    if place.before:
        end = bisect_left(keys, place.before)
        start = max(0, end - size)
    else:
        start = bisect_right(keys, place.after) if place.after else 0
        end = min(len(rows), start + size)
    shown = rows[start:end]
    return Page(
        rows=shown,
        before=keys[start] if shown and start else "",
        after=keys[end - 1] if shown and end < len(rows) else "",
        first=start + 1 if shown else 0,
        last=end,
        total=len(rows),
    )
