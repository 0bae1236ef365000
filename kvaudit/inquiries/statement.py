"""The exposure statement: what is known of a deployment between two moments. Pure.

Every instant is one of four, the worst that applies: *shown leaking*, *danger zone open*, *bounded by a valid
pass*, *untested*. There is no "not exposed": a clean test leaves a bound, and no test leaves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from kvaudit.verdict import Verdict

LEAK_CHECKS = ("canary", "rejection", "coherence", "concurrency", "prefix")
"""Checks whose critical fail is foreign text, or an answer that did not come from its prompt."""

BOUNDING = ("canary", "rejection")
"""Both must hold, passed, for an instant to be bounded: text that came back, and what happens at the limit."""

CHECKS = (*LEAK_CHECKS, "pool")
BY_CAPACITY = "capacity change"


class Standing(StrEnum):
    """Of an instant; in this order on the page, what is not known first."""

    UNTESTED = "untested"
    LEAKING = "shown leaking"
    DANGER = "danger zone open"
    BOUNDED = "bounded by a valid pass"


RANK = (Standing.LEAKING, Standing.DANGER, Standing.BOUNDED, Standing.UNTESTED)
"""Which one an instant has where several apply."""


@dataclass(frozen=True, slots=True)
class Held:
    """An interval of a check's state (`audits.CheckState`) as far as exposure is concerned.

    ``zone`` is the danger zone in prompt tokens [low, high); ``bound`` the leak rate that its last pass bounds.
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
    """That something applied from ``start`` (inclusive) to ``end`` (exclusive), and the run that says so."""

    start: datetime
    end: datetime
    standing: Standing
    why: str
    run: int | None = None
    zone: tuple[int, int] | None = None
    bound: float | None = None
    fingerprint: str = ""

    @property
    def length(self) -> timedelta:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Statement:
    """``spans`` cover [since, until) without gap or overlap, in order of time."""

    since: datetime
    until: datetime
    spans: Sequence[Span]
    dangers: Sequence[Span]  # every opening of the danger zone, also while shown leaking

    def time(self, standing: Standing) -> timedelta:
        return sum((s.end - s.start for s in self.spans if s.standing is standing), timedelta())

    def share(self, standing: Standing) -> float:
        whole = self.until - self.since
        return self.time(standing) / whole if whole else 0.0

    @property
    def worst(self) -> Standing:
        """What the statement as a whole comes to: bounded only where every instant was."""
        order = (Standing.LEAKING, Standing.DANGER, Standing.UNTESTED)
        return next((each for each in order if self.time(each)), Standing.BOUNDED)

    @property
    def largest_bound(self) -> float | None:
        """The weakest bound of all bounded spans; None when one of them states none."""
        bounds = [span.bound for span in self.spans if span.standing is Standing.BOUNDED]
        known = [bound for bound in bounds if bound is not None]
        return max(known) if known and len(known) == len(bounds) else None


def state(held: Iterable[Held], since: datetime, until: datetime) -> Statement:
    """``held``: every interval of `CHECKS` that began before ``until``, in any order."""
    by: dict[str, list[Held]] = {check: [] for check in CHECKS}
    for each in sorted(held, key=lambda h: h.since):
        if each.check in by:
            by[each.check].append(each)
    leaks = [span for check in LEAK_CHECKS for span in _leaks(by[check], until)]
    dangers = _dangers(by["pool"])
    passes = {check: _passes(by[check], leaks) for check in BOUNDING}
    edges = {since, until}
    for span in (*leaks, *dangers, *(span for found in passes.values() for span in found)):
        edges |= {moment for moment in (span.start, span.end) if since < moment < until}
    for check in BOUNDING:  # why nothing is known changes where a state does
        for each in by[check]:
            edges |= {moment for moment in (each.since, each.end) if since < moment < until}
    spans: list[Span] = []
    for start, end in pairwise(sorted(edges)):
        _append(spans, _at(start, end, leaks, dangers, passes, by))
    clipped = [_cut(span, since, until) for span in dangers if span.start < until and span.end > since]
    return Statement(since, until, spans, clipped)


def _at(
    start: datetime,
    end: datetime,
    leaks: Sequence[Span],
    dangers: Sequence[Span],
    passes: Mapping[str, Sequence[Span]],
    by: Mapping[str, Sequence[Held]],
) -> Span:
    for found in (leaks, dangers):
        for span in found:
            if span.start <= start < span.end:
                return _cut(span, start, end)
    holding = [next((s for s in passes[c] if s.start <= start < s.end), None) for c in BOUNDING]
    missing = [check for check, span in zip(BOUNDING, holding, strict=True) if span is None]
    canary = holding[0]
    if not missing and canary is not None:
        why = f"{' and '.join(BOUNDING)} had passed and nothing had expired them"
        return Span(start, end, Standing.BOUNDED, why, canary.run, None, canary.bound, canary.fingerprint)
    return Span(start, end, Standing.UNTESTED, "; ".join(_lack(c, by[c], start) for c in missing))


def _lack(check: str, held: Sequence[Held], moment: datetime) -> str:
    """Why no pass of the check bounds that moment."""
    before = [each for each in held if each.since <= moment]
    if not before:
        return f"{check} had never run"
    last = before[-1]
    if last.verdict is not Verdict.PASS:
        return f"{check} had last been {last.verdict.value}"
    if moment >= last.end:
        by = "a capacity change" if last.expired_by == BY_CAPACITY else "its age"
        return (
            f"{check}'s pass was ended by {by}"
            if last.closed_at is None or last.expires_at < last.closed_at
            else (f"{check} had not run again")
        )
    return f"{check}'s last pass was followed by a fail"


def _leaks(held: Sequence[Held], until: datetime) -> list[Span]:
    """A leak lasts until a pass of the same check, or another configuration. That nobody looked again, or that
    the next look decided nothing, mends nothing."""
    found: list[Span] = []
    began: Held | None = None
    for each in held:
        leaking = each.verdict is Verdict.FAIL and each.severity == "critical"
        if began is not None and (
            leaking
            or each.verdict in (Verdict.PASS, Verdict.FAIL)
            or _other(began.fingerprint, each.fingerprint)
        ):
            found.append(_leak(began, each.since))
            began = None
        if leaking:
            began = each
        if began is not None and each.expired_by == BY_CAPACITY:
            end = each.expires_at if each.closed_at is None else min(each.expires_at, each.closed_at)
            found.append(_leak(began, end))
            began = None
    if began is not None:
        found.append(_leak(began, until))
    return [span for span in found if span.end > span.start]


def _leak(began: Held, end: datetime) -> Span:
    why = f"{began.check} failed critically"
    return Span(began.since, end, Standing.LEAKING, why, began.run, fingerprint=began.fingerprint)


def _other(before: str, after: str) -> bool:
    return bool(before and after and before != after)


def _dangers(held: Sequence[Held]) -> list[Span]:
    """The pool check failing with a danger zone, or as critical as an affected or unknown disaggregated build
    makes it."""
    return [
        Span(
            each.since,
            each.end,
            Standing.DANGER,
            f"prompts of {each.zone[0]:,} to {each.zone[1] - 1:,} tokens reached the rejection path"
            if each.zone
            else "the pool is too small for a build that may leak at its limit",
            each.run,
            each.zone,
            fingerprint=each.fingerprint,
        )
        for each in held
        if each.verdict is Verdict.FAIL
        and (each.zone or each.severity == "critical")
        and each.end > each.since
    ]


def _passes(held: Sequence[Held], leaks: Sequence[Span]) -> list[Span]:
    """A pass bounds until it is ended. Where the next thing that any check shows is a leak, it bounds only until
    its last confirmation: between that and the leak nobody looked."""
    found = []
    for number, each in enumerate(held):
        if each.verdict is not Verdict.PASS:
            continue
        end = each.end
        following = held[number + 1] if number + 1 < len(held) else None
        if following is not None and following.verdict is Verdict.FAIL and following.since <= end:
            end = each.last_confirmed
        if any(each.last_confirmed < leak.start <= end for leak in leaks):
            end = each.last_confirmed
        if end > each.since:
            found.append(
                Span(each.since, end, Standing.BOUNDED, "", each.run, None, each.bound, each.fingerprint)
            )
    return found


def _cut(span: Span, start: datetime, end: datetime) -> Span:
    return Span(
        max(span.start, start), min(span.end, end), span.standing, span.why, span.run, span.zone, span.bound,
        span.fingerprint,
    )  # fmt: skip


def _append(spans: list[Span], span: Span) -> None:
    """Put it at the end, or make the last one longer where they say the same."""
    last = spans[-1] if spans else None
    if last is not None and (last.standing, last.why, last.run, last.zone, last.bound) == (
        span.standing, span.why, span.run, span.zone, span.bound,
    ):  # fmt: skip
        spans[-1] = Span(
            last.start, span.end, span.standing, span.why, span.run, span.zone, span.bound, span.fingerprint
        )
    else:
        spans.append(span)
