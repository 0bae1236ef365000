"""Takes an incident from a fix to *restored*: recording it, replaying, uploading, overriding, releasing. All
recorded."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.db import transaction

from kvaudit.server import clock
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.evidence.canonical import clean_text
from kvaudit.server.audits.execution import replay as replaying
from kvaudit.server.audits.models import Run
from kvaudit.server.audits.state import standing
from kvaudit.server.checklists.attestations import File, store
from kvaudit.server.checklists.scope import ClaimProblem
from kvaudit.server.incidents import opening, quarantine, restore_gate
from kvaudit.server.incidents.models import (
    ExternalResult,
    Fix,
    Incident,
    Override,
    Release,
    Replay,
    State,
)
from kvaudit.server.incidents.restore_facts import facts_of, fingerprint_of
from kvaudit.server.incidents.transitions import IncidentProblem, locked, move
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.services import record


@transaction.atomic
def mitigate(*, incident: Incident, actor: User, reason: str) -> Incident:
    """Say that tenants are out of danger, and by what. Raises IncidentProblem, PermissionDenied."""
    row = locked(incident)
    require(actor, "edit_incidents", row.deployment.team)
    if not reason.strip():
        raise IncidentProblem("Say what keeps tenants out of danger now.")
    return move(incident=row, to=State.MITIGATED, actor=actor, reason=reason)


@transaction.atomic
def record_fix(*, incident: Incident, actor: User, description: str) -> Fix:
    """Say that the cause is gone. Every test must be later than this. An open incident is mitigated by it."""
    row = locked(incident)
    require(actor, "edit_incidents", row.deployment.team)
    if row.state in (State.RESTORED, State.CLOSED):
        raise IncidentProblem(f"Incident {row.pk} is {row.state}: there is nothing left to fix.")
    said = clean_text(description.strip(), 4_000)
    if not said:
        raise IncidentProblem("Say what was changed: the build, the pool, the limit at the edge.")
    if row.state == State.OPEN:
        move(incident=row, to=State.MITIGATED, actor=actor, reason=f"Fix: {said}")
    fix = Fix.objects.create(incident=row, fixer=actor, description=said)
    record(
        actor=actor,
        kind="incident.fix_recorded",
        subject=f"incident:{row.pk} fix:{fix.pk}",
        digest=digest_of([said, fix.at.isoformat()]),
    )
    for check in opening.checks_of(row):
        standing.note_fix(row.deployment, check, fix.at, said)
    return fix


@transaction.atomic
def replay(*, incident: Incident, actor: User) -> Replay:
    """Queue the reproduction: the failing checks with the seed and the lengths of the run that showed
    it. Raises IncidentProblem, PermissionDenied."""
    row = locked(incident)
    require(actor, "run_audits", row.deployment.team)
    if row.state != State.MITIGATED or not row.fixes.exists():
        raise IncidentProblem("Record the fix first: a reproduction shows something only after it.")
    checks = opening.checks_of(row)
    cited = list(row.citations.select_related("result__run").order_by("-at", "-id"))
    original = next((citation.result.run for citation in cited if citation.result.run.seed is not None), None)
    if original is None:
        raise IncidentProblem(
            "No failing run of this incident kept a seed. Upload the result of an external script instead."
        )
    lengths = [length for found in opening.lengths_of(row, checks).values() for length in found]
    try:
        run = replaying.replay(original=original, checks=checks, lengths=lengths, actor=actor)
    except replaying.ReplayProblem as problem:
        raise IncidentProblem(str(problem)) from None
    return Replay.objects.create(
        incident=row, run=run, original=original, asked_by=f"user:{actor.get_username()}"[:200]
    )


@transaction.atomic
def upload_result(
    *, incident: Incident, actor: User, file: File, leaked: bool, description: str
) -> ExternalResult:
    """Keep an external script's output under its SHA-256. The fixer may not upload it.
    Raises IncidentProblem, PermissionDenied."""
    row = locked(incident)
    require(actor, "edit_incidents", row.deployment.team)
    fix = row.fixes.first()
    if row.state != State.MITIGATED or fix is None:
        raise IncidentProblem("Record the fix first: a result shows something only after it.")
    if fix.fixer_id == actor.pk:
        raise PermissionDenied(
            "The result of an external script is uploaded by somebody other than the fixer."
        )
    current = fingerprint_of(row.deployment)
    if not current:
        raise IncidentProblem("The deployment's nodes have not been read, so nobody knows what was tested.")
    said = clean_text(description.strip(), 1_000)
    if not said:
        raise IncidentProblem("Say which script it was, who ran it, and against what.")
    try:
        evidence = store(file)
    except ClaimProblem as problem:
        raise IncidentProblem(str(problem)) from None
    result = ExternalResult.objects.create(
        incident=row,
        uploader=actor,
        evidence=evidence,
        name=clean_text(file.name, 200) or "result",
        leaked=leaked,
        description=said,
        fingerprint=current,
    )
    record(
        actor=actor,
        kind="incident.external_result",
        subject=f"incident:{row.pk} external:{result.pk}",
        digest=evidence.pk,
    )
    return result


@transaction.atomic
def request_override(*, incident: Incident, actor: User, reason: str) -> Override:
    """Ask to let the deployment back without the tests. It takes a second person, and stays visible."""
    row = locked(incident)
    require(actor, "edit_incidents", row.deployment.team)
    if row.state != State.MITIGATED:
        raise IncidentProblem(f"Incident {row.pk} is {row.state}: only a mitigated one can be released.")
    why = clean_text(reason.strip(), 4_000)
    if not why:
        raise IncidentProblem("Say why it cannot wait for the tests, and what protects tenants meanwhile.")
    if row.overrides.filter(approved=None).exists():
        raise IncidentProblem("An override of this incident already waits for an approver.")
    override = Override.objects.create(
        incident=row, reason=why, requester=actor, fingerprint=fingerprint_of(row.deployment)
    )
    record(
        actor=actor,
        kind="incident.override_requested",
        subject=f"incident:{row.pk} override:{override.pk}",
        digest=digest_of([why, override.fingerprint]),
    )
    return override


@transaction.atomic
def decide_override(*, override: Override, actor: User, approve: bool, note: str = "") -> Override:
    """Approve or refuse what somebody else asked for. Raises IncidentProblem, PermissionDenied."""
    row = locked(override.incident)
    found = Override.objects.select_for_update(of=("self",)).get(pk=override.pk)
    require(actor, "approve", row.deployment.team)
    if found.requester_id == actor.pk:
        raise PermissionDenied("Nobody approves an override that they asked for: it takes a second person.")
    if found.approved is not None:
        raise IncidentProblem("This override is already decided.")
    said = clean_text(note.strip(), 1_000)
    if not said:
        raise IncidentProblem("Say why: the decision stays on the incident for good.")
    found.approved, found.decided_by, found.decided_at, found.note = approve, actor, clock.now(), said
    found.save(update_fields=["approved", "decided_by", "decided_at", "note"])
    record(
        actor=actor,
        kind="incident.override_approved" if approve else "incident.override_refused",
        subject=f"incident:{row.pk} override:{found.pk}",
        digest=digest_of([found.reason, found.fingerprint, approve, said]),
    )
    return found


def usable_override(incident: Incident, fingerprint: str) -> Override | None:
    """An approved override that was not used yet, asked for since the incident last moved and for
    today's configuration: what was decided about another one does not count."""
    rows = incident.overrides.filter(approved=True, release=None, fingerprint=fingerprint)
    last = incident.transitions.order_by("-at", "-id").first()
    if last is not None:
        rows = rows.filter(requested_at__gte=last.at)
    return rows.first()


@transaction.atomic
def release(*, incident: Incident, actor: User) -> Release:
    """Let the deployment back. Raises IncidentProblem with what is missing, PermissionDenied.

    The gate is asked again here, under the lock: what a page showed a minute ago decides nothing.
    """
    row = locked(incident)
    require(actor, "edit_incidents", row.deployment.team)
    if row.state != State.MITIGATED:
        raise IncidentProblem(f"Incident {row.pk} is {row.state}: only a mitigated one can be released.")
    facts = facts_of(row)
    asked = restore_gate.requirements(facts)
    missing = [requirement for requirement in asked if not requirement.met]
    override = usable_override(row, facts.fingerprint) if missing else None
    if missing and override is None:
        raise IncidentProblem(
            "The restore gate is closed: " + " ".join(requirement.sentence for requirement in missing)
        )
    grounds = {
        "requirements": [requirement.as_json() for requirement in asked],
        "override": override.pk if override else None,
        "fixed_at": facts.fixed_at.isoformat() if facts.fixed_at else None,
    }
    made = Release.objects.create(
        incident=row, released_by=actor, fingerprint=facts.fingerprint, grounds=grounds, override=override
    )
    made.runs.set(Run.objects.filter(pk__in={run for requirement in asked for run in requirement.runs}))
    by = "an override" if override else "both tests"
    move(
        incident=row,
        to=State.RESTORED,
        actor=actor,
        reason=f"Released by {by} on fingerprint {facts.fingerprint or 'unknown'}.",
        release=made,
    )
    record(
        actor=actor,
        kind="incident.released",
        subject=f"incident:{row.pk} release:{made.pk}",
        digest=digest_of(grounds),
    )
    quarantine.end_for(made, actor=actor)
    return made
