"""Reads out of a stored rejection result which lengths were asked and which failed, so that an incident can be
replayed at those."""

from __future__ import annotations

from kvaudit.auditor.checks.descriptor import Measures
from kvaudit.auditor.checks.measures import number, rows, tokens

BAD = ("without_nonce", "cut", "empty", "hidden", "timed_out", "failed")


def failing(measures: Measures) -> list[int]:
    """Rungs that did so in two of their repeats."""
    return [
        tokens(row.get("tokens"))
        for row in rows(measures, "rungs")
        if any(number(row.get(b)) >= 2 for b in BAD)
    ]


def answered(measures: Measures) -> list[int]:
    """Rungs that were accepted or refused at least once."""
    return [
        tokens(row.get("tokens"))
        for row in rows(measures, "rungs")
        if number(row.get("accepted")) + number(row.get("refused")) >= 1
    ]
