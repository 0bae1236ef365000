"""Which danger zones a request log is held against: those of the exposure statement, or lengths that somebody
gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvaudit.inquiries.importing import Zone
from kvaudit.inquiries.request_log import MOST_TOKENS
from kvaudit.inquiries.spans import Statement


@dataclass(frozen=True, slots=True)
class Asked:
    zones: Sequence[Zone]
    problem: str = ""


def zones(statement: Statement, low: str, high: str) -> Asked:
    """``low`` and ``high`` as they were typed; where both are empty, every zone that was open, at its own time."""
    if not low.strip() and not high.strip():
        return Asked(
            [Zone(span.start, span.end, *span.zone) for span in statement.zones if span.zone is not None]
        )
    first, last = _tokens(low) if low.strip() else 0, _tokens(high) if high.strip() else MOST_TOKENS
    if first is None or last is None or first >= last:
        return Asked(
            [],
            "The lengths are whole numbers of tokens, the lower one first: for instance 681274 and 1048570.",
        )
    return Asked([Zone(statement.since, statement.until, first, last)])


def _tokens(text: str) -> int | None:
    digits = text.strip().replace(",", "").replace("_", "")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 12 else None
