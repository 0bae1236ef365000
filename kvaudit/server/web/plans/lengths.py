"""Lengths of time as people write them: ``15 min``, ``1 h``, ``2d``, ``90`` (seconds)."""

from __future__ import annotations

import re

_UNITS = {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_LENGTH = re.compile(r"(\d{1,9})\s*([a-z]*)")
LONGEST = 366 * 86_400


def parse(text: str) -> int:
    """Seconds. Raises ValueError with a sentence."""
    match = _LENGTH.fullmatch(text.strip().lower())
    unit = _UNITS.get(match[2] or "s") if match else None
    if match is None or unit is None:
        raise ValueError("Write a number and a unit, for instance 30 s, 15 min, 1 h or 1 d.")
    seconds = int(match[1]) * unit
    if not 0 < seconds <= LONGEST:
        raise ValueError("It must be at least one second and at most 366 days.")
    return seconds


def written(seconds: int | None) -> str:
    """The largest unit that divides it; "" for none."""
    if not seconds:
        return ""
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds % size == 0:
            return f"{seconds // size} {name}"
    return f"{seconds} s"
