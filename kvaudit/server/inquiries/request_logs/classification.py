"""Classifies the requests of a log by length and time, and by what was known of the deployment then. Pure.

A request in an open danger zone is one thing, a request while a leak was shown another; one of lengths that were
dangerous at some time, sent while nothing was known, is neither and must not vanish: unknown is never unexposed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any

from kvaudit.server.inquiries.exposure.timespans import Span, SpanStatus, Statement
from kvaudit.server.inquiries.request_logs.reader import MOST_TOKENS, Request

ANY_LENGTH = (0, MOST_TOKENS + 1)
"""[low, high) tokens, where no dangerous length was ever known."""


class Judged(StrEnum):
    DANGER = "danger zone"
    LEAKING = "shown leaking"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Zone:
    """Prompts of [low, high) tokens, from ``since`` (inclusive) to ``until`` (exclusive)."""

    since: datetime
    until: datetime
    low: int
    high: int
    standing: Judged = Judged.DANGER

    def holds(self, request: Request) -> bool:
        return self.low <= request.tokens < self.high and self.since <= request.at < self.until

    def as_json(self) -> dict[str, str | int]:
        return {
            "since": self.since.isoformat(), "until": self.until.isoformat(), "low": self.low, "high": self.high,
            "standing": self.standing.value,
        }  # fmt: skip

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Zone:
        """Of any release: the earlier ones kept danger zones alone."""
        since, until = (datetime.fromisoformat(kept[name]) for name in ("since", "until"))
        return cls(since, until, kept["low"], kept["high"], Judged(kept.get("standing", Judged.DANGER.value)))


class Judge:
    """Says of each request what it was; made once for a whole log."""

    def __init__(self, zones: Iterable[Zone]) -> None:
        self._of: dict[Judged, list[Zone]] = {each: [] for each in Judged}
        for zone in zones:
            self._of[zone.standing].append(zone)
        # Nearly every request is shorter than all zones: that is decided without walking them.
        self._lowest = min(
            (zone.low for found in self._of.values() for zone in found), default=MOST_TOKENS + 1
        )
        self._longest = max((zone.high for zone in self._of[Judged.UNKNOWN]), default=MOST_TOKENS + 1)

    def inside(self, request: Request) -> bool:
        """Whether it lay in an open danger zone, leak or no leak."""
        return request.tokens >= self._lowest and self._held(request, Judged.DANGER)

    def of(self, request: Request) -> Judged | None:
        """The worst that applies; None where nothing does."""
        if request.tokens < self._lowest:
            return None
        order = (Judged.LEAKING, Judged.DANGER, Judged.UNKNOWN)
        return next((judged for judged in order if self._held(request, judged)), None)

    def longer(self, request: Request) -> bool:
        """Whether it came while nothing was known and is longer than every length that ever was dangerous."""
        return request.tokens >= self._longest and any(
            zone.since <= request.at < zone.until for zone in self._of[Judged.UNKNOWN]
        )

    def _held(self, request: Request, standing: Judged) -> bool:
        return any(zone.holds(request) for zone in self._of[standing])


def zones_of(statement: Statement, known: Iterable[tuple[int, int]]) -> list[Zone]:
    """The danger zones at their times; times shown leaking and times of which nothing is known, each with the
    ``known`` lengths: [low, high) of zones that were open in the window or after it."""
    found = [Zone(span.start, span.end, *span.zone) for span in statement.zones if span.zone is not None]
    lengths = joined(known) or [ANY_LENGTH]
    for standing, spans in (
        (Judged.LEAKING, [s for s in statement.spans if s.standing is SpanStatus.LEAKING]),
        (Judged.UNKNOWN, [s for s in statement.spans if _unknown(s)]),
    ):
        found += [
            Zone(start, end, low, high, standing) for start, end in _times(spans) for low, high in lengths
        ]
    return found


def _unknown(span: Span) -> bool:
    """Also an open danger zone whose lengths nobody knows says nothing about a request."""
    return span.standing is SpanStatus.UNTESTED or (span.standing is SpanStatus.DANGER and span.zone is None)


def _times(spans: Sequence[Span]) -> list[tuple[datetime, datetime]]:
    """Where one follows another without a gap, they are one: a reason may have changed in between."""
    starts = [span.start for span in spans]
    cuts = [n for n, (one, other) in enumerate(pairwise(spans), 1) if one.end < other.start]
    return [(starts[a], spans[b - 1].end) for a, b in pairwise([0, *cuts, len(spans)]) if b > a]


def joined(lengths: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Overlapping and touching lengths as one, shortest first."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(set(lengths)):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return found
