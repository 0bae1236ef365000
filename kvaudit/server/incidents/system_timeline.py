"""Gathers what the auditor itself recorded around an incident: changes of verdict, capacity and version,
alerts, audits. Read when it is shown, never copied into the postmortem."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from kvaudit.server import clock
from kvaudit.server.audits.models import Run, StateChange
from kvaudit.server.fleet.models import FingerprintChange
from kvaudit.server.incidents.models import Incident
from kvaudit.server.notify.models import Channel, OutboxMessage

BEFORE = timedelta(days=3)
MOST = 300
"""Events of each sort; a postmortem that needs more of them needs the history page."""


@dataclass(frozen=True, slots=True)
class SystemEvent:
    """One thing that the system saw. ``sort`` is verdict, capacity, alert, audit, incident or schedule."""

    at: datetime
    sort: str
    text: str
    verdict: str = ""
    run_id: int | None = None
    check: str = ""


def events_of(incident: Incident) -> list[SystemEvent]:
    """Oldest first, from three days before the window to the end (or now). Five queries."""
    start = (incident.window_from or incident.first_evidence_at or incident.opened_at) - BEFORE
    end = incident.closed_at or clock.now()
    found = [*_changes(incident, start, end), *_small_changes(incident, start, end)]
    found += [*_alerts(incident, start, end), *_active_runs(incident, start, end)]
    found += [
        SystemEvent(step.at, "incident", f"{step.actor}: {step.after}. {step.reason}")
        for step in incident.transitions.all()
    ]
    return sorted(found, key=lambda event: event.at)


def _changes(incident: Incident, start: datetime, end: datetime) -> list[SystemEvent]:
    rows = StateChange.objects.filter(deployment=incident.deployment_id, at__range=(start, end))
    sorts = {StateChange.What.VERDICT: "verdict", StateChange.What.CAPACITY: "capacity"}
    return [
        SystemEvent(
            row.at,
            sorts.get(StateChange.What(row.what), "schedule"),
            f"{row.check_id}: {row.summary}" if row.check_id else row.summary,
            row.after if row.what == StateChange.What.VERDICT else "",
            row.run_id,
            row.check_id if row.what == StateChange.What.VERDICT else "",
        )
        for row in rows.order_by("-id")[:MOST]
    ]


def _small_changes(incident: Incident, start: datetime, end: datetime) -> list[SystemEvent]:
    rows = FingerprintChange.objects.filter(
        deployment=incident.deployment_id, at__range=(start, end), state_change=None
    )
    return [SystemEvent(row.at, "capacity", row.summary) for row in rows.order_by("-at")[:MOST]]


def _alerts(incident: Incident, start: datetime, end: datetime) -> list[SystemEvent]:
    """Who was told is not said: channels are the business of who manages them."""
    rows = OutboxMessage.objects.filter(
        # By channel, for which there is an index in time: the outbox of a large fleet is long.
        channel__in=Channel.objects.filter(Q(team=None) | Q(team=incident.deployment.team_id)),
        payload__deployment=incident.deployment.slug,
        created_at__range=(start, end),
    )
    told: dict[tuple[datetime, str], int] = {}
    for at, subject in rows.order_by("-created_at").values_list("created_at", "subject")[:MOST]:
        key = (at.replace(microsecond=0), subject)
        told[key] = told.get(key, 0) + 1
    return [
        SystemEvent(at, "alert", f"Alert to {count} {'channel' if count == 1 else 'channels'}: {subject}")
        for (at, subject), count in told.items()
    ]


def _active_runs(incident: Incident, start: datetime, end: datetime) -> list[SystemEvent]:
    rows = Run.objects.filter(
        deployment=incident.deployment_id, kind="active", finished_at__range=(start, end)
    )
    return [
        SystemEvent(
            row.finished_at,
            "audit",
            f"{'Replay' if row.replayed_lengths else 'Active audit'} of {', '.join(row.checks)}: {row.summary}".strip(),
            row.verdict or "",
            row.pk,
        )
        for row in rows.order_by("-id")[:MOST]
        if row.finished_at is not None
    ]
