"""Incidents of a week, for the summary: opened, moved or still open in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Exists, OuterRef, Q

from kvaudit.server.accounts.models import User
from kvaudit.server.incidents.models import Incident, Transition

MOST = 100


@dataclass(frozen=True, slots=True)
class IncidentLine:
    """``state`` as of now; ``opened`` whether that was in the week."""

    number: int
    title: str
    deployment: str
    owner: str
    state: str
    severity: str
    opened_at: datetime
    opened: bool


def incidents_of(user: User, start: datetime, end: datetime) -> Sequence[IncidentLine]:
    """Those that were opened or moved in the week, and those that last; newest first. One query."""
    moved = Transition.objects.filter(incident=OuterRef("pk"), at__gte=start, at__lt=end)
    rows = (
        Incident.objects.visible_to(user)
        .filter(
            Q(opened_at__gte=start, opened_at__lt=end) | ~Q(state="closed") | Exists(moved), opened_at__lt=end
        )
        .select_related("deployment")
        .order_by("-pk")
    )
    return [
        IncidentLine(
            number=row.pk,
            title=row.title,
            deployment=row.deployment.slug,
            owner=row.deployment.owner,
            state=row.get_state_display().lower(),
            severity=row.get_severity_display().lower(),
            opened_at=row.opened_at,
            opened=start <= row.opened_at,
        )
        for row in rows[:MOST]
    ]
