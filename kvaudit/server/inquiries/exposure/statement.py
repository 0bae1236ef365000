"""Computes the exposure statement: what is known of a deployment between two moments. Pure.

Every instant is one of four, the worst that applies: *shown leaking*, *danger zone open*, *bounded by a valid
pass*, *untested*. There is no "not exposed": a clean test leaves a bound, and no test leaves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice, pairwise

from kvaudit.auditor import checks
from kvaudit.auditor.checks.descriptor import Meaning
from kvaudit.auditor.checks.pool.numbers import zone_in_words
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.inquiries.exposure.timespans import Span, SpanStatus, StateInterval, Statement

BOUNDING = tuple(sorted(checks.where("bounds")))
"""Both must hold, passed, of one configuration, for an instant to be bounded: text that came back, and what
happens at the limit."""

CHECKS = (*checks.INCIDENT, "pool")
"""An hour that is part of an incident is never *bounded*."""

BY_CAPACITY = "capacity change"
DIGITS = 8  # of a fingerprint, where people read it


def state(
    held: Iterable[StateInterval], since: datetime, until: datetime, changes: Iterable[datetime] = ()
) -> Statement:
    """``held``: every interval of `CHECKS` known by now, in any order: a leak that was found after ``until`` bears
    on the pass before it. ``changes``: when the deployment's capacity changed, as far as no interval in ``held``
    says so (`BY_CAPACITY`)."""
    by: dict[str, list[StateInterval]] = {check: [] for check in CHECKS}
    moved = set(changes)
    held = list(held)
    beyond = max((until, *(interval.since for interval in held))) + timedelta(days=1)
    for interval in sorted(held, key=lambda h: h.since):
        if interval.check in by:
            by[interval.check].append(interval)
        if interval.expired_by == BY_CAPACITY:
            moved.add(interval.end)
    ends = sorted(moved)
    leaks = [span for check in checks.INCIDENT for span in _lasting(by[check], beyond, ends, _leaks, _leak)]
    broken = [
        span
        for check in checks.INCIDENT
        for span in _lasting(by[check], beyond, ends, _breaks_a_boundary, _broken)
    ]
    dangers = _lasting(by["pool"], beyond, ends, _endangers, _danger)
    passes = {check: _passes(by[check], leaks) for check in BOUNDING}
    edges = {since, until}
    for span in (*leaks, *dangers, *broken, *(span for found in passes.values() for span in found)):
        edges |= {moment for moment in (span.start, span.end) if since < moment < until}
    for check in BOUNDING:  # why nothing is known changes where a state does
        for interval in by[check]:
            edges |= {moment for moment in (interval.since, interval.end) if since < moment < until}
    spans: list[Span] = []
    for start, end in pairwise(sorted(edges)):
        _append(spans, _at(start, end, leaks, dangers, broken, passes, by))
    clipped = [span.cut(since, until) for span in dangers if span.start < until and span.end > since]
    return Statement(since, until, spans, clipped)


def _at(
    start: datetime,
    end: datetime,
    leaks: Sequence[Span],
    dangers: Sequence[Span],
    broken: Sequence[Span],
    passes: Mapping[str, Sequence[Span]],
    by: Mapping[str, Sequence[StateInterval]],
) -> Span:
    """The worst that applies. Within one standing, what was looked at goes before what was not looked at again."""
    for found in (leaks, dangers):
        holding = [span for span in found if span.holds(start)]
        if holding:
            return min(holding, key=lambda span: span.last_look is not None).cut(start, end)
    passed = {check: next((s for s in passes[check] if s.holds(start)), None) for check in BOUNDING}
    missing = [check for check, span in passed.items() if span is None]
    if missing:
        why = "; ".join(_lack(check, by[check], start, leaks) for check in missing)
        return Span(start, end, SpanStatus.UNTESTED, why)
    if failed := next((span for span in broken if span.holds(start)), None):
        return failed.cut(start, end)
    rejection, canary = passed["rejection"], passed["canary"]
    assert rejection is not None
    assert canary is not None
    if not canary.fingerprint or canary.fingerprint != rejection.fingerprint:
        return Span(start, end, SpanStatus.UNTESTED, _apart(canary, rejection))
    why = f"{' and '.join(BOUNDING)} had passed and nothing had expired them"
    return Span(start, end, SpanStatus.BOUNDED, why, canary.run, None, canary.bound, canary.fingerprint)


def _apart(canary: Span, rejection: Span) -> str:
    """Why two passes do not bound together: each speaks of the configuration it was seen on alone."""
    of = [
        f"fingerprint {interval.fingerprint[:DIGITS]}" if interval.fingerprint else "an unknown fingerprint"
        for interval in (canary, rejection)
    ]
    return f"canary had passed on {of[0]}, rejection on {of[1]}: no configuration is known to have had both"


def _lack(check: str, held: Sequence[StateInterval], moment: datetime, leaks: Sequence[Span]) -> str:
    """Why no pass of the check bounds that moment."""
    before = [interval for interval in held if interval.since <= moment]
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
    following = next((interval for interval in held if interval.since > last.since), None)
    if following is not None and following.verdict is Verdict.FAIL and following.since <= last.end:
        return f"{check}'s last pass was followed by a fail"
    leak = next((span for span in leaks if _breaks(last, last.end, span)), None)
    return f"{check} had last passed before {leak.why}" if leak else f"{check} had not passed again"


def _breaks(passed: StateInterval, end: datetime, leak: Span) -> bool:
    """Whether the leak began after the pass was last confirmed, within what it would have held until."""
    return leak.last_look is None and passed.last_confirmed < leak.start <= end


def _lasting(
    held: Sequence[StateInterval],
    until: datetime,
    changes: Sequence[datetime],
    bad: Callable[[StateInterval], bool],
    told: Callable[[StateInterval], Span],
) -> list[Span]:
    """What a fail shows lasts until the same check passes or fails again, or the capacity changes. That nobody
    looked again, or that the next look decided nothing, mends nothing; that part is a span of its own, with its
    last look. The digest of an undecided run is no other configuration: a node that did not answer is not in it.
    """
    found: list[Span] = []
    for number, interval in enumerate(held):
        if not bad(interval):
            continue
        later = islice(held, number + 1, None)
        decided = next((h.since for h in later if h.verdict in (Verdict.PASS, Verdict.FAIL)), until)
        moved = next((moment for moment in changes if moment > interval.last_confirmed), until)
        end = min(decided, moved, until)
        seen = min(interval.end, end)
        span = replace(told(interval), end=seen)
        found += [
            span,
            replace(span, start=max(seen, span.start), end=end, last_look=interval.last_confirmed),
        ]
    return [span for span in found if span.end > span.start]


def _leaks(interval: StateInterval) -> bool:
    return (
        interval.verdict is Verdict.FAIL and checks.meaning(interval.check, interval.severity) is Meaning.LEAK
    )


def _leak(interval: StateInterval) -> Span:
    why = (
        f"{interval.check} failed and showed a leak"
        if interval.severity != "critical"
        else f"{interval.check} failed critically"
    )
    return Span(
        interval.since, interval.end, SpanStatus.LEAKING, why, interval.run, fingerprint=interval.fingerprint
    )


def _breaks_a_boundary(interval: StateInterval) -> bool:
    return (
        interval.verdict is Verdict.FAIL
        and checks.meaning(interval.check, interval.severity) is Meaning.BOUNDARY
    )


def _broken(interval: StateInterval) -> Span:
    why = f"{interval.check} had failed: where a boundary does not hold, no pass bounds"
    return Span(
        interval.since, interval.end, SpanStatus.UNTESTED, why, interval.run, fingerprint=interval.fingerprint
    )


def _endangers(interval: StateInterval) -> bool:
    """The pool check failing with a danger zone, or as critical as an affected or unknown disaggregated build
    makes it."""
    return interval.verdict is Verdict.FAIL and (interval.zone is not None or interval.severity == "critical")


def _danger(interval: StateInterval) -> Span:
    why = (
        f"prompts of {zone_in_words(interval.zone)} tokens would reach the rejection path"
        if interval.zone
        else "the pool is too small for a build that may leak at its limit"
    )
    return Span(
        interval.since,
        interval.end,
        SpanStatus.DANGER,
        why,
        interval.run,
        interval.zone,
        None,
        interval.fingerprint,
    )


def _passes(held: Sequence[StateInterval], leaks: Sequence[Span]) -> list[Span]:
    """A pass bounds until it is ended. Where the next thing that any check shows is a leak, it bounds only until
    its last confirmation: between that and the leak nobody looked."""
    found = []
    for number, interval in enumerate(held):
        if interval.verdict is not Verdict.PASS:
            continue
        end = interval.end
        following = held[number + 1] if number + 1 < len(held) else None
        if following is not None and following.verdict is Verdict.FAIL and following.since <= end:
            end = interval.last_confirmed
        if any(_breaks(interval, end, leak) for leak in leaks):
            end = interval.last_confirmed
        if end > interval.since:
            found.append(
                Span(
                    interval.since,
                    end,
                    SpanStatus.BOUNDED,
                    "",
                    interval.run,
                    None,
                    interval.bound,
                    interval.fingerprint,
                )
            )
    return found


def _append(spans: list[Span], span: Span) -> None:
    """Put it at the end, or make the last one longer where they say the same."""
    last = spans[-1] if spans else None
    if last is not None and replace(last, start=span.start, end=span.end) == span:
        spans[-1] = replace(last, end=span.end)
    else:
        spans.append(span)
