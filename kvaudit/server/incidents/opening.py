"""Opens incidents from changes of state, or by hand, and attaches later evidence to them."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction
from django.db.models import Max

from kvaudit.auditor import checks as known_checks
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import actor_name
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.evidence.canonical import clean_text
from kvaudit.server.audits.models import CheckState, Result, StateChange
from kvaudit.server.audits.state.intervals import lock_deployments
from kvaudit.server.fleet.models import Deployment, NodeSnapshot
from kvaudit.server.incidents import action_enforcement, result_meaning
from kvaudit.server.incidents import quarantine as quarantining
from kvaudit.server.incidents.models import Citation, Cursor, Handled, Incident, Kind, Severity, State
from kvaudit.server.incidents.transitions import IncidentProblem, move, note

CONSUMER = "system:incidents"
LOOK_BACK = 2_000
"""Ids below the cursor that are looked at again: a change becomes visible when its transaction commits,
which may be after a later one's."""
BATCH = 200
MORE_EVIDENCE = 20


def consume() -> int:
    """Act on the changes since the last time; returns how many had consequences.

    One consumer at a time (the cursor's row lock, which a second one does not wait for); what has been
    acted on is marked in the same transaction, so that coming twice changes nothing.
    """
    Cursor.objects.get_or_create(reader="incidents")
    with transaction.atomic():
        cursor = Cursor.objects.select_for_update(skip_locked=True).filter(reader="incidents").first()
        if cursor is None:
            return 0
        changes = list(
            StateChange.objects.after(cursor.last_id - LOOK_BACK)
            .filter(what=StateChange.What.VERDICT, after=Verdict.FAIL.value)
            .exclude(pk__in=Handled.objects.filter(change_id__gt=cursor.last_id - LOOK_BACK).values("pk"))[
                :BATCH
            ]
        )
        lasting = Incident.objects.filter(state__in=(State.OPEN, State.MITIGATED, State.RESTORED))
        ids = {change.deployment_id for change in changes} | set(lasting.values_list("deployment", flat=True))
        deployments = lock_deployments(ids)
        for change in changes:
            _act(change, deployments[change.deployment_id])
        Handled.objects.bulk_create(Handled(change=change) for change in changes)
        _more_evidence(deployments)
        newest = StateChange.objects.aggregate(last=Max("id"))["last"] or 0
        if len(changes) < BATCH:
            cursor.last_id = max(cursor.last_id, newest)
        else:
            cursor.last_id = max(cursor.last_id, changes[-1].pk)
        cursor.save(update_fields=["last_id"])
    return len(changes)


def _act(change: StateChange, deployment: Deployment) -> None:
    action_enforcement.reopen_actions(deployment, change.check_id, change.summary)
    severity = str(change.detail.get("severity", ""))
    kind = result_meaning.kind_of(change.check_id, severity)
    if kind is None or change.run_id is None:
        return
    result = (
        Result.objects.filter(run=change.run_id, check_id=change.check_id, verdict=Verdict.FAIL.value)
        .select_related("run")
        .order_by("-attempt")
        .first()
    )
    if result is not None:
        attach(deployment=deployment, kind=kind, result=result)


def attach(*, deployment: Deployment, kind: Kind, result: Result) -> Incident:
    """Give the fail to the incident of this kind that lasts, or open one. The caller holds the
    deployment's lock."""
    held = (
        Incident.objects.lasting()
        .select_for_update(of=("self",))
        .select_related("deployment__team")
        .filter(deployment=deployment, kind=kind)
        .first()
    )
    if held is None:
        held = _open(deployment, kind, result)
    _cite(held, result)
    if held.severity == Severity.CRITICAL and held.state in (State.OPEN, State.MITIGATED):
        quarantining.begin(
            held,
            actor=CONSUMER,
            reason=f"A verified leak: {result.check_id} failed in run {result.run_id}.",
        )
    return held


def _open(deployment: Deployment, kind: Kind, result: Result) -> Incident:
    last = (
        CheckState.objects.filter(
            deployment=deployment,
            check_id=result.check_id,
            node=None,
            verdict=Verdict.PASS.value,
            last_confirmed__lt=result.observed_at,
        )
        .order_by("-last_confirmed")
        .first()
    )
    made = Incident.objects.create(
        deployment=deployment,
        kind=kind,
        title=f"{kind.label} on {deployment.slug}, shown by {result.check_id}"[:200],
        severity=result_meaning.severity_of(result.severity),
        opened_by=CONSUMER,
        fingerprint=result.run.fingerprint,
        first_evidence_at=result.observed_at,
        last_evidence_at=result.observed_at,
        window_from=last.last_confirmed if last else None,
        window_to=result.observed_at,
        window_check=result.check_id,
    )
    note(made, actor=CONSUMER, before="", reason=result.summary, at=made.opened_at)
    return made


def _cite(incident: Incident, result: Result) -> None:
    _, new = Citation.objects.get_or_create(
        incident=incident, result=result, defaults={"at": result.observed_at}
    )
    if not new:
        return
    lengths = known_checks.failing_lengths(result.check_id, result.measures)
    shown = [length for length in (incident.affected_from, incident.affected_to, *lengths) if length]
    incident.affected_from, incident.affected_to = min(shown, default=None), max(shown, default=None)
    worse = min(
        Severity(incident.severity), result_meaning.severity_of(result.severity), key=lambda each: each.rank
    )
    incident.severity = worse
    incident.first_evidence_at = min(incident.first_evidence_at or result.observed_at, result.observed_at)
    incident.last_evidence_at = max(incident.last_evidence_at or result.observed_at, result.observed_at)
    incident.fingerprint = incident.fingerprint or result.run.fingerprint
    roles, builds = _running(incident.deployment)
    incident.roles = sorted({*incident.roles, *roles})
    incident.builds = sorted({*incident.builds, *builds})
    incident.save(
        update_fields=[
            "affected_from", "affected_to", "severity", "first_evidence_at", "last_evidence_at", "fingerprint", "roles",
            "builds",
        ]
    )  # fmt: skip
    if _came_back(incident, result):
        move(
            incident=incident,
            to=State.OPEN,
            actor=CONSUMER,
            reason=f"It failed again after the fix: {result.summary}"[:1_000],
        )


def _came_back(incident: Incident, result: Result) -> bool:
    """A restored deployment that fails again, or a fix that did not hold. A fail that was heard of only after
    the restoration is one that it did not know of: what stands now, has come back."""
    at = result.observed_at
    if incident.state == State.RESTORED:
        since = incident.restored_at
        return since is not None and (at > since or _stands(incident.deployment_id, result.check_id))
    if incident.state != State.MITIGATED:
        return False
    fix = incident.fixes.first()
    return fix is not None and at > fix.at


def _stands(deployment: int, check: str) -> bool:
    """Whether the check says *fail* now."""
    return CheckState.objects.filter(
        deployment=deployment, check_id=check, node=None, closed_at=None, verdict=Verdict.FAIL.value
    ).exists()


def _running(deployment: Deployment) -> tuple[set[str], set[str]]:
    """Roles and builds of the nodes as last read."""
    rows = NodeSnapshot.objects.filter(current=True, node__deployment=deployment, node__valid_to=None)
    roles, builds = set(), set()
    for engine, version, role, declared in rows.values_list("engine", "version", "role", "node__role"):
        if role or declared:
            roles.add((role or declared)[:40])
        builds.add(f"{engine} {version or 'of unknown version'}"[:120])
    return roles, builds


def _more_evidence(deployments: dict[int, Deployment]) -> None:
    """A check that goes on failing changes no state: later fails of what an incident cites attach here."""
    rows = (
        Incident.objects.filter(
            deployment__in=deployments, state__in=(State.OPEN, State.MITIGATED, State.RESTORED)
        )
        .exclude(kind=Kind.OTHER)
        .annotate(newest=Max("citations__result_id"))
    )
    newest = dict(rows.values_list("pk", "newest"))
    for incident in rows:
        if newest.get(incident.pk) is None:
            continue
        later = Result.objects.filter(
            deployment=incident.deployment_id,
            check_id__in=known_checks.INCIDENT,
            verdict=Verdict.FAIL.value,
            id__gt=newest[incident.pk] or 0,
        )
        for result in later.select_related("run").order_by("id")[:MORE_EVIDENCE]:
            if result_meaning.kind_of(result.check_id, result.severity) == incident.kind:
                attach(
                    deployment=deployments[incident.deployment_id], kind=Kind(incident.kind), result=result
                )


@transaction.atomic
def open_by_hand(
    *,
    deployment: Deployment,
    title: str,
    severity: str,
    summary: str,
    actor: User,
    quarantine: bool = False,
    affected_from: int | None = None,
) -> Incident:
    """Somebody reports what no check has seen. Raises IncidentProblem, PermissionDenied."""
    require(actor, "edit_incidents", deployment.team)
    named = clean_text(" ".join(title.split()), 200)
    if not named:
        raise IncidentProblem("Give the incident a title: what happened, where.")
    if severity not in Severity.values:
        raise IncidentProblem(f"The severity is one of {', '.join(Severity.values)}.")
    if affected_from is not None and not 0 < affected_from < 2**60:
        raise IncidentProblem("The shortest affected length is a number of tokens above 0.")
    lock_deployments([deployment.pk])
    roles, builds = _running(deployment)
    made = Incident.objects.create(
        deployment=deployment,
        kind=Kind.OTHER,
        title=named,
        severity=severity,
        summary=clean_text(summary.strip(), 20_000),
        opened_by=actor_name(actor),
        affected_from=affected_from,
        roles=sorted(roles),
        builds=sorted(builds),
    )
    if quarantine:
        quarantining.begin(made, actor=actor, reason=f"Incident {made.pk}: {named}")
    note(made, actor=actor, before="", reason=named, at=made.opened_at)
    return made


def checks_of(incident: Incident) -> list[str]:
    """Checks whose fails the incident cites."""
    return sorted(set(incident.citations.values_list("result__check_id", flat=True)))


def lengths_of(incident: Incident, checks: Iterable[str]) -> dict[str, list[int]]:
    """Check -> failing lengths over everything cited, ascending."""
    found: dict[str, set[int]] = {check: set() for check in checks}
    for check, measures in incident.citations.values_list("result__check_id", "result__measures"):
        if check in found and isinstance(measures, dict):
            found[check].update(known_checks.failing_lengths(check, measures))
    return {check: sorted(lengths) for check, lengths in found.items()}
