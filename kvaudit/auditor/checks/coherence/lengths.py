"""Which lengths of a coherence run came back without their nonce."""

from __future__ import annotations

from kvaudit.auditor.checks.descriptor import Measures
from kvaudit.auditor.checks.measures import rows, tokens


def failing(measures: Measures) -> list[int]:
    """Lengths whose prompt was not read."""
    return [tokens(row.get("tokens")) for row in rows(measures, "readings") if row.get("nonce") is False]
