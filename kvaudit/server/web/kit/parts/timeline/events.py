"""What happened to a deployment, as marks and spans of lanes: the rows behind timeline and table.

Verdicts come from `CheckState` (spans) and `StateChange` (marks), capacity and versions from
`FingerprintChange`, waivers, incidents and pauses from `decided`, the hours of audits from `hours`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, Q
from django.urls import reverse

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.models import CheckState, CheckStateQuerySet, Overdue, StateChange
from kvaudit.server.fleet.models import Deployment, FingerprintChange

CAPACITY, VERSION = "capacity change", "version change"  # the check "version" has a lane of its own
SCHEDULE, PAUSED = "schedule", "probes paused"
WAIVERS, INCIDENTS = "waivers", "incidents"
EXPIRED, OVERDUE, SMALL, ENDED = "expired", "overdue", "within tolerance", "ended"

MOST_MARKS = 10_000
MOST_SPANS = 10_000
_CHECK = re.compile(r"[a-z][a-z0-9_-]{0,39}")
LONGEST_BACK = timedelta(days=400)
_VERDICTS = frozenset(verdict.value for verdict in Verdict)
_VERSION_FIELDS = frozenset({"version", "engine", "process_version", "build"})


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at ``at``. ``kind`` is a verdict, `EXPIRED`, `OVERDUE`, `CAPACITY`,
    `VERSION`, `SMALL` or another word; ``text`` may be foreign; ``href`` an address of ours or ""."""

    at: datetime
    lane: str
    kind: str
    text: str
    href: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """Something that held from ``start`` to ``end`` (None: still does)."""

    lane: str
    start: datetime
    end: datetime | None
    kind: str
    text: str = ""
    href: str = ""


def marks_of(
    deployment: Deployment,
    *,
    spans: Sequence[Span] = (),
    since: datetime | None = None,
    before: datetime | None = None,
    limit: int = MOST_MARKS,
) -> list[Mark]:
    """Newest first, those from ``since`` on and earlier than ``before``; beginnings and ends of ``spans`` among
    them. Two queries."""
    when = Q() if before is None else Q(at__lt=before)
    if since is not None:
        when &= Q(at__gte=since)
    found = [*_state_marks(deployment, when, limit), *_fingerprint_marks(deployment, when, limit)]
    there = {(mark.at, mark.lane, mark.kind) for mark in found}
    for mark in ends_of(spans):
        if (before is None or mark.at < before) and (mark.at, mark.lane, mark.kind) not in there:
            found.append(mark)
    return sorted(found, key=lambda mark: mark.at, reverse=True)[:limit]


def ends_of(spans: Sequence[Span]) -> Iterator[Mark]:
    """Where they begin and end. A verdict's begin and end with changes that are marks already, and what expired
    ends with the next of them."""
    for span in spans:
        if span.kind in _VERDICTS:
            continue
        yield Mark(span.start, span.lane, span.kind, span.text, span.href)
        if span.end is not None and span.kind != EXPIRED:
            yield Mark(span.end, span.lane, ENDED, span.text, span.href)


def _state_marks(deployment: Deployment, when: Q, limit: int) -> Iterator[Mark]:
    rows = (
        StateChange.objects.filter(when, deployment=deployment)
        .exclude(what=StateChange.What.CAPACITY)  # their fingerprints say more
        .order_by("-at", "-id")
        .values_list(
            "at", "what", "check_id", "before", "after", "summary", "run_id", "node__name", "plan__name"
        )
    )
    for at, what, check, was, now, summary, run, node, plan in rows[:limit]:
        on_check = what in (StateChange.What.VERDICT, StateChange.What.EXPIRED)
        named = [name for name in (node, plan) if name]
        yield Mark(
            at=at,
            lane=check if on_check and check else SCHEDULE,
            kind=now if what == StateChange.What.VERDICT else what,
            text=f"{', '.join(named)}: {summary}" if named else summary,
            href=run_address(run, check if on_check else ""),
            before=was,
        )


def _fingerprint_marks(deployment: Deployment, when: Q, limit: int) -> Iterator[Mark]:
    rows = (
        FingerprintChange.objects.filter(when, deployment=deployment)
        .order_by("-at", "-pk")
        .values_list("at", "significant", "summary", "diff", "node__name", "state_change__run_id")
    )
    for at, significant, summary, diff, node, run in rows[:limit]:
        names = (
            [str(each.get("name", "")) for each in diff if isinstance(each, dict)]
            if isinstance(diff, list)
            else []
        )
        versions = [name for name in names if name in _VERSION_FIELDS]
        text = summary if str(summary).startswith(str(node)) else f"{node}: {summary}"
        if versions:
            yield Mark(at, VERSION, VERSION if significant else SMALL, text, run_address(run))
        if len(versions) < len(names) or not names:
            yield Mark(at, CAPACITY, CAPACITY if significant else SMALL, text, run_address(run))


def capacity_changes(deployment: Deployment, limit: int) -> list[Mark]:
    """Newest first. One query."""
    return [mark for mark in _fingerprint_marks(deployment, Q(), limit) if mark.lane == CAPACITY]


def spans_of(deployment: Deployment, now: datetime) -> list[Span]:
    """What each check said and how long, when nothing was known any more, and overdue plans. Two queries."""
    found: list[Span] = []
    rows = _states(deployment).filter(Q(closed_at=None) | Q(closed_at__gt=now - LONGEST_BACK))
    for check, verdict, since, closed, expires, expired_by, run in rows.order_by("-since", "-id").values_list(
        *_STATE
    )[:MOST_SPANS]:
        end = closed or now
        held = max(since, min(end, expires))
        until = None if closed is None and held == now else held
        found.append(Span(check, since, until, verdict, "", run_address(run, check)))
        if held < end:
            found.append(_expired(check, held, closed, expired_by, run))
    return [*found, *_overdue(deployment, MOST_SPANS)]


def gaps_of(
    deployment: Deployment, now: datetime, *, before: datetime | None = None, limit: int
) -> list[Span]:
    """Of `spans_of` what begins by itself, with no change of a verdict: the newest that expired, and overdue plans.
    Two queries."""
    ended = Q(closed_at=None, expires_at__lt=now) | Q(closed_at__gt=F("expires_at"))
    rows = _states(deployment).filter(ended, expires_at__lt=before or now).order_by("-expires_at", "-id")
    found = [
        _expired(check, max(since, expires), closed, expired_by, run)
        for check, _, since, closed, expires, expired_by, run in rows.values_list(*_STATE)[:limit]
    ]
    return [*found, *_overdue(deployment, MOST_SPANS)]


_STATE = ("check_id", "verdict", "since", "closed_at", "expires_at", "expired_by", "run_id")


def _states(deployment: Deployment) -> CheckStateQuerySet:
    return CheckState.objects.filter(deployment=deployment, node=None)


def _expired(check: str, start: datetime, end: datetime | None, by: str, run: int | None) -> Span:
    why = by or "older than its evidence may be"
    return Span(check, start, end, EXPIRED, f"nothing known any more: {why}", run_address(run, check))


def _overdue(deployment: Deployment, limit: int) -> list[Span]:
    rows = Overdue.objects.filter(deployment=deployment).order_by("-since", "-id")
    return [
        Span(SCHEDULE, since, until, OVERDUE, f"plan {name}: due, and did not run")
        for since, until, name in rows.values_list("since", "until", "plan__name")[:limit]
    ]


def run_address(pk: int | None, check: str = "") -> str:
    """Its page, at what it says of the check."""
    if not pk:
        return ""
    return reverse("run", args=[pk]) + (f"#check-{check}" if _CHECK.fullmatch(check) else "")
