"""Moves an incident from state to state: one function takes every step, and writes it down."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from kvaudit.server import clock
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor, actor_name
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.evidence.canonical import clean_text
from kvaudit.server.incidents.models import Incident, Release, State, Transition
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.services import record


class IncidentProblem(ValueError):
    """Something that cannot be done to an incident; the text is a sentence for the person who asked."""


STEPS: dict[str, frozenset[str]] = {
    State.OPEN: frozenset({State.MITIGATED}),
    State.MITIGATED: frozenset({State.OPEN, State.RESTORED}),
    State.RESTORED: frozenset({State.OPEN, State.CLOSED}),
    State.CLOSED: frozenset(),
}
"""State -> the states that may follow. To *restored* only with a release in hand; see `move`."""


@transaction.atomic
def move(
    *,
    incident: Incident,
    to: State,
    actor: Actor,
    reason: str,
    release: Release | None = None,
    at: datetime | None = None,
) -> Incident:
    """Take one step and write it down. The caller holds the incident's lock (`locked`).

    *Restored* takes a release of this incident that has carried no step yet; nothing else leads there.
    Raises IncidentProblem for a step that does not exist.
    """
    before = State(incident.state)
    if to not in STEPS[before]:
        raise IncidentProblem(
            f"Incident {incident.pk} is {before.value}: it cannot become {to.value} from there."
        )
    if to is State.RESTORED and not _carries(release, incident):
        raise IncidentProblem("Only the restore gate leads back: both tests, or a recorded override.")
    now = at or clock.now()
    incident.state = to
    changed = ["state"]
    if to is State.OPEN:
        incident.mitigated_at = incident.restored_at = None
        changed += ["mitigated_at", "restored_at"]
    else:
        name = {State.MITIGATED: "mitigated_at", State.RESTORED: "restored_at", State.CLOSED: "closed_at"}[to]
        setattr(incident, name, now)
        changed.append(name)
    incident.save(update_fields=changed)
    note(incident, actor=actor, before=before.value, reason=reason, at=now)
    return incident


@transaction.atomic
def take(*, incident: Incident, actor: User) -> Incident:
    """Make the actor the lead: whoever comes next sees that somebody works on it. Recorded. Raises IncidentProblem,
    PermissionDenied."""
    row = locked(incident)
    require(actor, "edit_incidents", row.deployment.team)
    if not row.is_open:
        raise IncidentProblem(f"Incident {row.pk} is closed: there is nothing left to lead.")
    if row.lead_id == actor.pk:
        return row
    before = row.lead.get_username() if row.lead else ""
    row.lead = actor
    row.save(update_fields=["lead"])
    record(
        actor=actor,
        kind="incident.taken",
        subject=f"incident:{row.pk}",
        digest=digest_of([before, actor.get_username()]),
    )
    return row


def note(incident: Incident, *, actor: Actor, before: str, reason: str, at: datetime) -> Transition:
    """The history row of a step that has been taken, and its entry in the ledger."""
    transition = Transition.objects.create(
        incident=incident,
        at=at,
        actor=actor_name(actor)[:200],
        before=before,
        after=incident.state,
        reason=clean_text(reason.strip(), 1_000),
    )
    record(
        actor=actor,
        kind=f"incident.{incident.state}",
        subject=f"incident:{incident.pk} deployment:{incident.deployment.slug}",
        digest=digest_of([before, incident.state, transition.reason, at.isoformat()]),
    )
    return transition


def locked(incident: Incident) -> Incident:
    """The row, its deployment's lock held first: whoever opens, moves or releases queues there."""
    from kvaudit.server.audits.state.intervals import lock_deployments

    lock_deployments([incident.deployment_id])
    return (
        Incident.objects.select_for_update(of=("self",))
        .select_related("deployment__team")
        .get(pk=incident.pk)
    )


def _carries(release: Release | None, incident: Incident) -> bool:
    """A release made since the incident was last open: an old one does not count twice."""
    if release is None or release.pk is None or release.incident_id != incident.pk:
        return False
    last = incident.transitions.order_by("-at", "-id").first()
    return last is None or release.at >= last.at
