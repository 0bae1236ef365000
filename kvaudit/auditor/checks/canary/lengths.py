"""Reads out of a stored canary result which lengths were asked and which brought another request's marker, so
that an incident can be replayed at those."""

from __future__ import annotations

from collections.abc import Mapping

from kvaudit.auditor.checks.descriptor import Measures
from kvaudit.auditor.checks.measures import number, rows, tokens


def failing(measures: Measures) -> list[int]:
    """Lengths of the answers with a hit."""
    return [tokens(row.get("tokens")) for row in rows(measures, "hits")]


def answered(measures: Measures) -> list[int]:
    """Lengths with an answer or a refusal that counts. A row of drawn lengths lists them; one of an older release
    has a single one."""
    found = []
    for row in rows(measures, "matrix"):
        lengths, outcomes = row.get("lengths"), row.get("outcomes")
        if isinstance(lengths, list):
            found += [int(number(length)) for length in lengths if number(length)]
        elif isinstance(outcomes, Mapping) and any(
            number(outcomes.get(name)) for name in ("answered", "refused")
        ):
            found.append(int(number(row.get("tokens"))))
    return found
