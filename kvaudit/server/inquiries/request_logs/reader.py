"""Reads a request log: CSV or JSON lines, one request a line, in constant memory. Pure.

Columns: ``time``, ``prompt_tokens``, ``tenant``, ``id`` and, optional, ``prefill_seconds``; some other usual
names are understood. A line that cannot be read is a problem with its number, never the end of the import.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

import orjson

LONGEST_LINE = 64 * 1024
"""Bytes. A request's line has a few hundred; a longer one is not read into memory."""

LONGEST_NAME = 1_000
MOST_TOKENS = 10**12

NAMES: Mapping[str, tuple[str, ...]] = {
    "time": ("time", "timestamp", "ts", "@timestamp", "received_at", "created_at"),
    "prompt_tokens": ("prompt_tokens", "input_tokens", "tokens", "prompt_length"),
    "tenant": ("tenant", "tenant_id", "customer", "org", "api_key", "user"),
    "id": ("id", "request_id", "trace_id"),
    "prefill_seconds": ("prefill_seconds", "prefill_time", "time_to_first_token", "ttft"),
}
REQUIRED = ("time", "prompt_tokens", "tenant")


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``prefill`` in seconds, None where the log does not say; ``id`` may be ""."""

    line: int
    at: datetime
    tokens: int
    tenant: str
    id: str
    prefill: float | None


@dataclass(frozen=True, slots=True)
class Problem:
    line: int
    sentence: str


class NoLog(ValueError):
    """The file as a whole cannot be read as a request log; a sentence."""


def read(file: IO[bytes]) -> Iterator[Request | Problem]:
    """Requests and problems in the order of their lines. Raises `NoLog` before the first one, if at all."""
    numbered = lines(file)
    for number, line in numbered:
        if isinstance(line, Problem):
            raise NoLog(f"Line {number} is longer than {LONGEST_LINE:,} bytes: this is no request log.")
        if line.strip():
            break
    else:
        raise NoLog("The file is empty.")
    if line.lstrip().startswith("{"):
        yield from _json_lines(number, line, numbered)
    elif line.lstrip().startswith("["):
        raise NoLog("This is one JSON list. Write one object a line (JSON lines): jq -c '.[]' file.json")
    else:
        yield from _csv(number, line, numbered)


def lines(file: IO[bytes]) -> Iterator[tuple[int, str | Problem]]:
    """Line numbers and lines without their ends; of an overlong line only a problem is kept."""
    number = 0
    while raw := file.readline(LONGEST_LINE):
        number += 1
        if len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
            while (more := file.readline(LONGEST_LINE)) and not more.endswith(b"\n"):
                pass
            yield number, Problem(number, f"The line is longer than {LONGEST_LINE:,} bytes.")
            continue
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
            # UTF-16 without its mark has a NUL beside every letter.
            if (
                raw.startswith((b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b", b"PK\x03\x04"))
                or b"\x00" in raw[:1_000]
            ):
                raise NoLog(
                    "The file is not UTF-8 text (it is compressed, or UTF-16): unpack or convert it first."
                )
        yield number, raw.decode("utf-8", "replace").rstrip("\r\n")


def _json_lines(
    number: int, first: str, rest: Iterable[tuple[int, str | Problem]]
) -> Iterator[Request | Problem]:
    for at, line in _with(number, first, rest):
        if isinstance(line, Problem):
            yield line
            continue
        if not line.strip():
            continue
        try:
            entry = orjson.loads(line)
        except orjson.JSONDecodeError:
            yield Problem(at, "This is no JSON object.")
            continue
        if not isinstance(entry, dict):
            yield Problem(at, "This is no JSON object.")
            continue
        yield _request(at, {name: _first(entry, names) for name, names in NAMES.items()})


def _csv(number: int, first: str, rest: Iterable[tuple[int, str | Problem]]) -> Iterator[Request | Problem]:
    if "\r" in first:
        raise NoLog("The lines end in carriage returns alone: write them with line feeds.")
    delimiter = max(",;\t", key=first.count)
    try:
        head = [cell.strip().lower() for cell in _cells(first, delimiter)]
    except csv.Error as fault:
        raise NoLog(f"The first line cannot be read as CSV: {fault}.") from None
    places = {
        name: next((head.index(each) for each in names if each in head), None)
        for name, names in NAMES.items()
    }
    missing = [name for name in REQUIRED if places[name] is None]
    if missing:
        raise NoLog(
            f"The first line names no column {' and no column '.join(missing)}. It must name the columns: "
            "time,prompt_tokens,tenant,id and, optional, prefill_seconds."
        )
    for at, line in rest:
        if isinstance(line, Problem):
            yield line
            continue
        if not line.strip():
            continue
        try:
            cells = _cells(line, delimiter)
        except csv.Error:
            yield Problem(at, "A quotation mark is not closed on its line.")
            continue
        if len(cells) > len(head):
            yield Problem(at, f"The line has {len(cells)} columns where the first line names {len(head)}.")
            continue
        yield _request(
            at,
            {
                name: cells[place] if place is not None and place < len(cells) else None
                for name, place in places.items()
            },
        )


def _cells(line: str, delimiter: str) -> list[str]:
    # One line at a time: a quote that is never closed must not swallow the rest of two gigabytes.
    return next(csv.reader([line], delimiter=delimiter, strict=True), [])


def _with(
    number: int, first: str, rest: Iterable[tuple[int, str | Problem]]
) -> Iterator[tuple[int, str | Problem]]:
    yield number, first
    yield from rest


def _first(entry: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((entry[name] for name in names if entry.get(name) is not None), None)


def _request(line: int, found: Mapping[str, Any]) -> Request | Problem:
    at = moment(found["time"])
    if at is None:
        return Problem(line, "The time is missing or no time: ISO 8601 or seconds since 1970.")
    tokens = _tokens(found["prompt_tokens"])
    if tokens is None:
        return Problem(line, "prompt_tokens is missing or no whole number.")
    tenant = found["tenant"]
    if tenant is None or isinstance(tenant, (dict, list)) or not str(tenant).strip():
        return Problem(line, "The tenant is missing.")
    name, id_ = str(tenant).strip(), str(found["id"] if found["id"] is not None else "").strip()
    if len(name) > LONGEST_NAME or len(id_) > LONGEST_NAME:
        return Problem(line, f"The tenant or the id is longer than {LONGEST_NAME:,} characters.")
    prefill = found["prefill_seconds"]
    seconds = None
    if prefill is not None and str(prefill).strip():
        seconds = _seconds(prefill)
        if seconds is None:
            return Problem(line, "prefill_seconds is no positive number of seconds.")
    return Request(line, at, tokens, name, id_, seconds)


def moment(value: Any) -> datetime | None:
    """ISO 8601 (UTC where it names no zone) or seconds, milliseconds, micro- or nanoseconds since 1970."""
    if isinstance(value, str):
        text = value.strip()
        try:
            found = datetime.fromisoformat(text)
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        try:
            value = float(text)
        except ValueError:
            return None
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or value <= 0
    ):
        return None
    seconds = float(value)
    for _ in range(3):
        if seconds < 1e11:  # the year 5138
            break
        seconds /= 1_000
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _tokens(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip()
        if not (text.isascii() and text.isdigit() and len(text) <= 13):
            return None
        value = int(text)
    if (
        isinstance(value, float) and value == int(value)
        if isinstance(value, float) and math.isfinite(value)
        else False
    ):
        value = int(value)
    return value if isinstance(value, int) and 0 <= value <= MOST_TOKENS else None


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) and 0 < found < 1e6 else None
