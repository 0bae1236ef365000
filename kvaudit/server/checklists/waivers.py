"""Moves waivers from state to state: asked for by one person, given or refused by another, ended by time. One
function moves a waiver from state to state; whether it waives anything is decided when a page is read."""

from __future__ import annotations

from datetime import datetime

from django.core.exceptions import PermissionDenied
from django.db import transaction

from kvaudit.server import clock
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.audits.evidence.canonical import clean_text
from kvaudit.server.checklists import time_limits
from kvaudit.server.checklists.attestations import check_expiry
from kvaudit.server.checklists.models import Assessed, Decision, Waiver
from kvaudit.server.checklists.scope import ClaimProblem, Scope, item_of
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.services import record

LEAKING = (
    "Item {item} of {slug} shows a verified leak, and a leak cannot be waived: stop serving the lengths "
    "concerned or quarantine the deployment."
)


@transaction.atomic
def request_waiver(
    *,
    item: str,
    reason: str,
    expires_at: datetime,
    actor: User,
    deployment: Deployment | None = None,
    team: Team | None = None,
) -> Waiver:
    """Ask for leave not to comply with an item. It waives nothing until somebody else approves it.
    Raises ClaimProblem with a sentence, PermissionDenied for whoever may not."""
    scope = Scope.of(deployment, team)
    _person(actor)
    require(actor, "request_waivers", scope.team)
    found = item_of(scope.team, item)
    now = clock.now()
    why = clean_text(reason.strip(), 4_000)
    if not why:
        raise ClaimProblem("Say why the item cannot be met now, and what protects tenants meanwhile.")
    check_expiry(expires_at, now, time_limits.longest_waiver(), "A waiver")
    _not_leaking(scope, found.key)
    same = Waiver.objects.pending(now).filter(item=found.key, **scope.columns)
    if same.exists():
        raise ClaimProblem(f"A waiver of item {found.key} for {scope} already waits for an approver.")
    waiver = Waiver.objects.create(
        item=found.key,
        reason=why,
        requester=actor,
        requested_at=now,
        expires_at=expires_at,
        **scope.columns,
    )
    _record(waiver, scope, actor, "waiver.requested")
    return waiver


@transaction.atomic
def approve_waiver(*, waiver: Waiver, actor: User, note: str = "") -> Waiver:
    """Give a waiver that somebody else asked for; from now on it holds until it expires. One that held
    for the same item is closed. Raises ClaimProblem, PermissionDenied."""
    locked, scope = _locked(waiver, actor)
    require(actor, "approve", scope.team)
    if locked.requester_id == actor.pk:
        raise PermissionDenied("Nobody approves a waiver that they asked for: it takes a second person.")
    now = clock.now()
    _pending(locked, now)
    check_expiry(locked.expires_at, now, time_limits.longest_waiver(), "A waiver")
    _not_leaking(scope, locked.item)
    Waiver.objects.filter(
        item=locked.item, decision=Decision.APPROVED, valid_to=None, **scope.columns
    ).update(valid_to=now, ended_by=actor, end_reason="replaced")
    locked.valid_from = now
    return _decide(locked, scope, Decision.APPROVED, actor, note, now)


@transaction.atomic
def refuse_waiver(*, waiver: Waiver, actor: User, note: str) -> Waiver:
    """Say no, and why. Raises ClaimProblem, PermissionDenied."""
    locked, scope = _locked(waiver, actor)
    require(actor, "approve", scope.team)
    if not note.strip():
        raise ClaimProblem("Say why it is refused: the person who asked will read it.")
    now = clock.now()
    _pending(locked, now)
    return _decide(locked, scope, Decision.REFUSED, actor, note, now)


@transaction.atomic
def end_waiver(*, waiver: Waiver, actor: User, reason: str) -> Waiver:
    """Withdraw a request, or end a waiver before its time: the item then stands as it truly does, so
    whoever may ask for waivers may end them. Raises ClaimProblem, PermissionDenied."""
    locked, scope = _locked(waiver, actor)
    require(actor, "request_waivers", scope.team)
    now = clock.now()
    if locked.decision == Decision.PENDING:
        return _decide(locked, scope, Decision.WITHDRAWN, actor, reason, now)
    if not locked.in_force(now):
        raise ClaimProblem("This waiver is not in force any more.")
    why = clean_text(reason.strip(), 500)
    if not why:
        raise ClaimProblem("Say why it ends before its time.")
    locked.valid_to, locked.ended_by, locked.end_reason = now, actor, why
    locked.save(update_fields=["valid_to", "ended_by", "end_reason"])
    _record(locked, scope, actor, "waiver.ended")
    return locked


def _locked(waiver: Waiver, actor: Actor) -> tuple[Waiver, Scope]:
    _person(actor)
    locked = Waiver.objects.select_for_update(of=("self",)).get(pk=waiver.pk)
    return locked, Scope.of(locked.deployment, locked.team)


def _pending(waiver: Waiver, now: datetime) -> None:
    if waiver.decision != Decision.PENDING:
        raise ClaimProblem(f"This waiver is already decided: {waiver.get_decision_display().lower()}.")
    if waiver.expires_at <= now:
        raise ClaimProblem("Its end has passed before anybody decided: ask for another one.")


def _decide(
    waiver: Waiver, scope: Scope, decision: Decision, actor: User, note: str, now: datetime
) -> Waiver:
    """The one transition out of *pending*, with its record."""
    waiver.decision, waiver.decided_by, waiver.decided_at = decision, actor, now
    waiver.decision_note = clean_text(note.strip(), 500)
    waiver.save(update_fields=["decision", "decided_by", "decided_at", "decision_note", "valid_from"])
    _record(waiver, scope, actor, f"waiver.{decision.value}")
    return waiver


def _not_leaking(scope: Scope, item: str) -> None:
    """A request for one deployment that could never waive anything is refused at once; for a team the
    guard is where standings are computed."""
    if scope.deployment is None:
        return
    rows = Assessed.objects.filter(pk=scope.deployment.pk).standings().rows
    if rows and item in rows[0].cells and rows[0].cells[item].leak:
        raise ClaimProblem(LEAKING.format(item=item, slug=scope.deployment.slug))


def _record(waiver: Waiver, scope: Scope, actor: User, kind: str) -> None:
    record(
        actor=actor,
        kind=kind,
        subject=f"{scope.subject} item:{waiver.item} waiver:{waiver.pk}",
        digest=digest_of(
            [
                waiver.reason,
                waiver.expires_at.isoformat(),
                waiver.decision,
                waiver.decision_note,
                waiver.end_reason,
            ]
        ),
    )


def _person(actor: Actor) -> None:
    if not isinstance(actor, User):
        raise PermissionDenied("Waivers are asked for, given and refused by people.")
