"""Defines what an exposure statement is made of: states of checks, and spans of time with a status. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from kvaudit.auditor.verdict import Verdict


class SpanStatus(StrEnum):
    """Of an instant; in this order on the page, what is not known first."""

    UNTESTED = "untested"
    LEAKING = "shown leaking"
    DANGER = "danger zone open"
    BOUNDED = "bounded by a valid pass"


@dataclass(frozen=True, slots=True)
class StateInterval:
    """An interval of a check's state (`audits.CheckState`) as far as exposure is concerned.

    ``zone`` is the danger zone in prompt tokens [low, high); ``bound`` the leak rate that its last pass bounds.
    ``fingerprint`` is "" where it is not known of what configuration the check spoke.
    """

    check: str
    verdict: Verdict
    severity: str
    since: datetime
    last_confirmed: datetime
    expires_at: datetime
    closed_at: datetime | None
    expired_by: str
    fingerprint: str
    run: int
    zone: tuple[int, int] | None = None
    bound: float | None = None

    @property
    def end(self) -> datetime:
        """Until when it held by itself."""
        return self.expires_at if self.closed_at is None else min(self.closed_at, self.expires_at)


@dataclass(frozen=True, slots=True)
class Span:
    """That something applied from ``start`` (inclusive) to ``end`` (exclusive), and the run that says so.

    ``last_look`` is when it was last confirmed, where the span lies beyond what that look was good for: nobody
    looked again, or the next look decided nothing. None where it holds by a look of its own.
    """

    start: datetime
    end: datetime
    standing: SpanStatus
    why: str
    run: int | None = None
    zone: tuple[int, int] | None = None
    bound: float | None = None
    fingerprint: str = ""
    last_look: datetime | None = None

    @property
    def length(self) -> timedelta:
        return self.end - self.start

    def holds(self, moment: datetime) -> bool:
        return self.start <= moment < self.end

    def cut(self, start: datetime, end: datetime) -> Span:
        """What of it lies in [start, end)."""
        return replace(self, start=max(self.start, start), end=min(self.end, end))


@dataclass(frozen=True, slots=True)
class Statement:
    """``spans`` cover [since, until) without gap or overlap, in order of time."""

    since: datetime
    until: datetime
    spans: Sequence[Span]
    dangers: Sequence[Span]  # every opening of the danger zone, also while shown leaking

    def time(self, standing: SpanStatus) -> timedelta:
        return sum((s.length for s in self.spans if s.standing is standing), timedelta())

    def unconfirmed(self, standing: SpanStatus) -> timedelta:
        """How much of that time lies beyond what its last look was good for."""
        found = (s.length for s in self.spans if s.standing is standing and s.last_look is not None)
        return sum(found, timedelta())

    def last_look(self, standing: SpanStatus) -> datetime | None:
        """The latest look that such time still rests on; None where all of it was looked at."""
        return max((s.last_look for s in self.spans if s.standing is standing and s.last_look), default=None)

    def share(self, standing: SpanStatus) -> float:
        whole = self.until - self.since
        return self.time(standing) / whole if whole else 0.0

    @property
    def zones(self) -> Sequence[Span]:
        """The openings whose lengths are known; one where equal ones follow each other without a gap."""
        return merged(span for span in self.dangers if span.zone is not None)

    @property
    def worst(self) -> SpanStatus:
        """What the statement as a whole comes to: bounded only where every instant was."""
        order = (SpanStatus.LEAKING, SpanStatus.DANGER, SpanStatus.UNTESTED)
        return next((status for status in order if self.time(status)), SpanStatus.BOUNDED)

    @property
    def largest_bound(self) -> float | None:
        """The weakest bound of all bounded spans; None when one of them states none."""
        bounds = [span.bound for span in self.spans if span.standing is SpanStatus.BOUNDED]
        known = [bound for bound in bounds if bound is not None]
        return max(known) if known and len(known) == len(bounds) else None


def merged(spans: Iterable[Span]) -> list[Span]:
    """Spans of the same zone that touch or overlap as one, in order of time."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda each: each.start):
        same = next(
            (n for n, each in enumerate(found) if each.zone == span.zone and each.end >= span.start), None
        )
        if same is None:
            found.append(span)
        else:
            found[same] = replace(found[same], end=max(found[same].end, span.end))
    return found
