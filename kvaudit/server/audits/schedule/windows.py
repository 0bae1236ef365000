"""Decides whether a moment lies in the hours in which audits may run, and when the next ones begin. Pure.

A window is ``{"days": ["mon", ...], "from": "22:00", "to": "06:00", "zone": "Europe/Berlin"}``: no
days means every day, an end not after its start lies on the next day. No windows at all: any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
Windows = Sequence[Mapping[str, Any]]


def problem(windows: object) -> str:
    """ "" or a sentence that says what is wrong with these windows."""
    if not isinstance(windows, Sequence) or isinstance(windows, str):
        return "Windows are a list."
    for window in windows:
        try:
            _spans(window, date(2026, 1, 1))
        except (TypeError, KeyError, ValueError, AttributeError):
            return (
                f"{window!r} is not a window: it needs from and to as HH:MM, days out of "
                f"{', '.join(DAYS)} (none for every day) and a time zone such as Europe/Berlin."
            )
    return ""


def is_open(moment: datetime, *all_windows: Windows) -> bool:
    """Whether ``moment`` lies in every given list (an empty list is always open)."""
    return all(not windows or any(_holds(window, moment) for window in windows) for windows in all_windows)


def next_open(moment: datetime, *all_windows: Windows) -> datetime | None:
    """``moment`` if open, else when all lists are next open together; None when not within eight days."""
    if is_open(moment, *all_windows):
        return moment
    starts = {
        start
        for windows in all_windows
        for window in windows
        for start, _ in _around(window, moment, days=9)
        if start > moment
    }
    return next((start for start in sorted(starts) if is_open(start, *all_windows)), None)


def spans(windows: Windows, start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """When windows are open between two moments (UTC), in order, clipped to them; overlaps are joined."""
    days = (end - start).days + 1
    found = sorted(each for window in windows for each in _around(window, start, days=days))
    joined: list[tuple[datetime, datetime]] = []
    for begin, stop in found:
        begin, stop = max(begin, start), min(stop, end)
        if begin >= stop:
            continue
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((begin, stop))
    return joined


def _holds(window: Mapping[str, Any], moment: datetime) -> bool:
    return any(start <= moment < end for start, end in _around(window, moment, days=1))


def _around(window: Mapping[str, Any], moment: datetime, days: int) -> list[tuple[datetime, datetime]]:
    """The window's spans (UTC) that begin from the local day before ``moment`` to ``days`` after."""
    today = moment.astimezone(ZoneInfo(window.get("zone") or "UTC")).date()
    spans = []
    for offset in range(-1, days + 1):
        spans += _spans(window, today + timedelta(days=offset))
    return spans


def _spans(window: Mapping[str, Any], day: date) -> list[tuple[datetime, datetime]]:
    days = list(window.get("days") or ())
    if any(name not in DAYS for name in days):
        raise ValueError("unknown day")
    zone = ZoneInfo(window.get("zone") or "UTC")
    begin, end = time.fromisoformat(window["from"]), _end_of_day(window["to"])
    if days and DAYS[day.weekday()] not in days:
        return []
    last = day if end is not None and end > begin else day + timedelta(days=1)
    start = datetime.combine(day, begin, tzinfo=zone)
    stop = datetime.combine(last, end or time(0), tzinfo=zone)
    return [(start.astimezone(UTC), stop.astimezone(UTC))]


def _end_of_day(text: str) -> time | None:
    """None for 24:00 and 00:00: midnight after the day."""
    return None if text in ("24:00", "00:00") else time.fromisoformat(text)
