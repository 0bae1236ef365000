"""What happened to a deployment, as marks and spans of lanes: the rows behind timeline and table.

Verdicts come from `CheckState` (spans) and `StateChange` (marks), capacity and versions from
`FingerprintChange`, waivers and incidents from `decided`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from django.urls import reverse

from kvaudit.audits.models import CheckState, Overdue, StateChange
from kvaudit.audits.windows import spans as window_spans
from kvaudit.fleet.models import Deployment, FingerprintChange, Pause

CAPACITY, VERSION = "capacity change", "version change"  # the check "version" has a lane of its own
SCHEDULE, PAUSED = "schedule", "probes paused"
WAIVERS, INCIDENTS = "waivers", "incidents"
EXPIRED, OVERDUE, SMALL, ENDED = "expired", "overdue", "within tolerance", "ended"

MOST_MARKS = 10_000
MOST_SPANS = 10_000
LONGEST_BACK = timedelta(days=400)
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
    decided: Sequence[Span] = (),
    before: datetime | None = None,
    limit: int = MOST_MARKS,
) -> list[Mark]:
    """Newest first, those earlier than ``before``; beginnings and ends of what was ``decided`` among them.
    Two queries."""
    when = Q() if before is None else Q(at__lt=before)
    found = [*_state_marks(deployment, when, limit), *_fingerprint_marks(deployment, when, limit)]
    found += [mark for span in decided for mark in _ends(span) if before is None or mark.at < before]
    return sorted(found, key=lambda mark: mark.at, reverse=True)[:limit]


def _ends(span: Span) -> Iterator[Mark]:
    yield Mark(span.start, span.lane, span.kind, span.text, span.href)
    if span.end is not None:
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
            href=_run(run),
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
            yield Mark(at, VERSION, VERSION if significant else SMALL, text, _run(run))
        if len(versions) < len(names) or not names:
            yield Mark(at, CAPACITY, CAPACITY if significant else SMALL, text, _run(run))


def spans_of(deployment: Deployment, now: datetime) -> list[Span]:
    """What each check said and how long, when nothing was known any more, overdue plans, and pauses of
    active probes. Three queries."""
    found: list[Span] = []
    rows = (
        CheckState.objects.filter(deployment=deployment, node=None)
        .filter(Q(closed_at=None) | Q(closed_at__gt=now - LONGEST_BACK))
        .order_by("-since", "-id")
        .values_list("check_id", "verdict", "since", "closed_at", "expires_at", "expired_by", "run_id")
    )
    for check, verdict, since, closed, expires, expired_by, run in rows[:MOST_SPANS]:
        end = closed or now
        held = max(since, min(end, expires))
        found.append(
            Span(check, since, None if closed is None and held == now else held, verdict, "", _run(run))
        )
        if held < end:
            why = expired_by or "older than its evidence may be"
            found.append(Span(check, held, closed, EXPIRED, f"nothing known any more: {why}", _run(run)))
    for since, until, name in Overdue.objects.filter(deployment=deployment).values_list(
        "since", "until", "plan__name"
    )[:MOST_SPANS]:
        found.append(Span(SCHEDULE, since, until, OVERDUE, f"plan {name} is overdue"))
    for pause in Pause.objects.applying_to(deployment).order_by("-valid_from")[:MOST_SPANS]:
        why = f": {pause.reason}" if pause.reason else ""
        found.append(Span(PAUSED, pause.valid_from, pause.valid_to, PAUSED, f"by {pause.paused_by}{why}"))
    return found


def windows_of(deployment: Deployment, start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """The hours in which active audits may run, as they are declared now; none where they always may."""
    windows: Sequence[Any] = deployment.windows if isinstance(deployment.windows, list) else []
    return window_spans(windows, start, end) if windows else []


def _run(pk: int | None) -> str:
    return reverse("run", args=[pk]) if pk else ""
