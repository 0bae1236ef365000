"""Windows as lines of text: ``mon-fri 22:00-06:00 Europe/Berlin``. Days and zone may be left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kvaudit.server.audits.schedule.windows import DAYS, problem

_LINE = re.compile(
    r"(?:(?P<days>[a-z,\- ]+?)\s+)?(?P<from>\d{1,2}:\d{2})\s*-\s*(?P<to>\d{1,2}:\d{2})"
    r"(?:\s+(?P<zone>[A-Za-z][\w+\-/]*))?"
)


class WindowProblem(ValueError):
    """A line that is no window; the text names the line."""


def parse(text: str) -> list[dict[str, Any]]:
    """One window a line; empty lines do not count. Raises `WindowProblem` for the first bad one."""
    found = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line:
            continue
        match = _LINE.fullmatch(line) or _LINE.fullmatch(line[:1].lower() + line[1:])
        if match is None:
            raise WindowProblem(
                f"Line {number} is not a window: write, for instance, 'mon-fri 22:00-06:00 Europe/Berlin'."
            )
        window = {
            "days": _days(match["days"] or "", number),
            "from": match["from"].zfill(5),
            "to": match["to"].zfill(5),
            "zone": match["zone"] or "UTC",
        }
        if sentence := problem([window]):
            raise WindowProblem(f"Line {number}: {sentence}")
        found.append(window)
    return found


def lines(windows: Sequence[Mapping[str, Any]]) -> str:
    """The text that `parse` reads back."""
    return "\n".join(line(window) for window in windows)


def line(window: Mapping[str, Any]) -> str:
    days = ",".join(str(day) for day in window.get("days") or ())
    zone = str(window.get("zone") or "UTC")
    return f"{days + ' ' if days else ''}{window.get('from')}-{window.get('to')} {zone}"


def _days(text: str, number: int) -> list[str]:
    days: list[str] = []
    for part in re.split(r"[,\s]+", text.strip()):
        if not part:
            continue
        first, dash, last = part.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise WindowProblem(
                f"Line {number}: days are {', '.join(DAYS)}, for instance mon-fri or sat,sun."
            )
        start, end = DAYS.index(first), DAYS.index(last or first)
        span = DAYS[start : end + 1] if start <= end else (*DAYS[start:], *DAYS[: end + 1])
        days.extend(day for day in span if day not in days)
    return days
