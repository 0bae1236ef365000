"""What people decided about a deployment, as spans of the timeline: waivers, incidents and pauses of probes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db.models import Q
from django.urls import NoReverseMatch, reverse

from kvaudit.server.checklists.models import Waiver
from kvaudit.server.fleet.models import Deployment, Pause
from kvaudit.server.incidents.models import Incident
from kvaudit.server.web.kit.parts.timeline.events import INCIDENTS, PAUSED, WAIVERS, Span

MOST = 500


def decided_about(deployment: Deployment, now: datetime) -> list[Span]:
    """Waivers in force then or now, of the deployment or its team, incidents, and pauses of active checks.
    Three queries."""
    return [*_waivers(deployment, now), *_incidents(deployment), *_pauses(deployment)]


def _waivers(deployment: Deployment, now: datetime) -> Sequence[Span]:
    rows = Waiver.objects.filter(
        Q(deployment=deployment) | Q(team=deployment.team_id), decision="approved", valid_from__isnull=False
    ).order_by("-valid_from")
    found = []
    for waiver in rows[:MOST]:
        end = min(waiver.valid_to or waiver.expires_at, waiver.expires_at)
        scope = "" if waiver.deployment_id else " for the whole team"
        found.append(
            Span(
                lane=WAIVERS,
                start=waiver.valid_from or waiver.requested_at,
                end=None if end > now else end,
                kind=WAIVERS,
                text=f"item {waiver.item} waived{scope}: {waiver.reason}",
                href=_address("waiver", waiver.pk),
            )
        )
    return found


def _incidents(deployment: Deployment) -> Sequence[Span]:
    rows = Incident.objects.filter(deployment=deployment).order_by("-id")
    return [
        Span(
            lane=INCIDENTS,
            start=incident.opened_at,
            end=incident.restored_at or incident.closed_at,
            kind=INCIDENTS,
            text=f"incident {incident.pk}, {incident.severity}: {incident.title}",
            href=_address("incident", incident.pk),
        )
        for incident in rows[:MOST]
    ]


def _pauses(deployment: Deployment) -> Sequence[Span]:
    """Of the deployment and of the whole fleet."""
    rows = Pause.objects.applying_to(deployment).order_by("-valid_from")
    found = []
    for pause in rows[:MOST]:
        scope = "" if pause.deployment_id else " for the whole fleet"
        why = f": {pause.reason}" if pause.reason else ""
        found.append(
            Span(PAUSED, pause.valid_from, pause.valid_to, PAUSED, f"by {pause.paused_by}{scope}{why}")
        )
    return found


def _address(name: str, pk: int) -> str:
    """The page of it, where this build has one."""
    try:
        return reverse(name, args=[pk])
    except NoReverseMatch:
        return ""
