"""Puts a deployment into quarantine (it must take no traffic), which the restore gate alone ends."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import Q

from kvaudit.server import clock
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor, actor_name
from kvaudit.server.audits.evidence.canonical import clean_text
from kvaudit.server.incidents.models import Incident, IncidentQuerySet, Quarantine, Release, Severity, State
from kvaudit.server.incidents.transitions import IncidentProblem, locked
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.services import record


@transaction.atomic
def quarantine(*, incident: Incident, actor: Actor, reason: str) -> Quarantine:
    """Put the incident's deployment under quarantine; one that holds already stays as it is.
    Raises IncidentProblem without a reason or when the incident is over."""
    row = locked(incident)
    require(actor, "quarantine", row.deployment.team)
    why = clean_text(reason.strip(), 1_000)
    if not why:
        raise IncidentProblem("Say why the deployment must not take traffic.")
    if row.state in (State.RESTORED, State.CLOSED):
        raise IncidentProblem(f"Incident {row.pk} is {row.state}: open a new one to quarantine again.")
    return begin(row, actor=actor, reason=why)


def begin(incident: Incident, *, actor: Actor, reason: str, at: datetime | None = None) -> Quarantine:
    """Open the interval unless one is open. The caller holds the deployment's lock."""
    held = Quarantine.objects.of(incident.deployment).first()
    if held is not None:
        return held
    made = Quarantine.objects.create(
        deployment=incident.deployment,
        incident=incident,
        set_by=actor_name(actor)[:200],
        reason=reason,
        valid_from=at or clock.now(),
    )
    record(
        actor=actor,
        kind="deployment.quarantined",
        subject=f"deployment:{incident.deployment.slug} incident:{incident.pk}",
        digest=digest_of([reason]),
    )
    return made


def end_for(release: Release, *, actor: Actor) -> bool:
    """End the quarantine unless another incident still needs it. The caller holds the lock and has just
    made the release; nothing else ends a quarantine. True when the deployment is free now."""
    deployment = release.incident.deployment
    held = Quarantine.objects.of(deployment).first()
    if held is None:
        return True
    if needing(held, but=release.incident).exists():
        return False
    held.valid_to = max(clock.now(), held.valid_from)
    held.ended_by = actor_name(actor)[:200]
    held.end_reason = f"Release {release.pk} of incident {release.incident_id}"
    held.save(update_fields=["valid_to", "ended_by", "end_reason"])
    record(
        actor=actor,
        kind="deployment.released",
        subject=f"deployment:{deployment.slug} incident:{release.incident_id} release:{release.pk}",
        digest=digest_of(release.grounds),
    )
    return True


def needing(held: Quarantine, *, but: Incident) -> IncidentQuerySet:
    """Other incidents of the deployment for which it must stay under quarantine."""
    lasting = Incident.objects.filter(
        deployment=held.deployment_id, state__in=(State.OPEN, State.MITIGATED)
    ).exclude(pk=but.pk)
    return lasting.filter(Q(severity=Severity.CRITICAL) | Q(quarantines=held)).distinct()
