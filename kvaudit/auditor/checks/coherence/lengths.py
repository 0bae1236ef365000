"""Reads out of a stored coherence result which lengths came back without their nonce, so that an incident can
be replayed at those."""

from __future__ import annotations

from kvaudit.auditor.checks.descriptor import Measures
from kvaudit.auditor.checks.measures import rows, tokens


def failing(measures: Measures) -> list[int]:
    """Lengths whose prompt was not read."""
    return [tokens(row.get("tokens")) for row in rows(measures, "readings") if row.get("nonce") is False]
