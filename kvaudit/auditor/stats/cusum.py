"""Finds whether a standardised measure has drifted down over many runs (lower CUSUM)."""

from __future__ import annotations

from collections.abc import Iterable


def first_alarm(standardised: Iterable[float], k: float = 0.5, h: float = 5.0) -> int | None:
    """Index of the first alarm of a one-sided lower CUSUM, or None. With k = 0.5 and h = 5 about
    900 points pass between false alarms and 10.5 until a shift of -1 sigma is seen (methods.md 2.c)."""
    fallen = 0.0
    for index, value in enumerate(standardised):
        fallen = max(0.0, fallen - value - k)
        if fallen > h:
            return index
    return None
