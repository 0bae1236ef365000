"""Asks for a second person's approval of a session API: its steps are requests of any method and body that
kvaudit sends from inside, so they are asked only after a second person has approved exactly what stands there.
Any change needs a new word."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import transaction

from kvaudit.server import clock
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.accounts.models import User
from kvaudit.server.fleet.models import Deployment, SessionApproval
from kvaudit.server.ledger.services import record

LARGEST = 150_000
"""Characters of what can be approved: nobody reads more, and a page would not show it."""

NOT_APPROVED = (
    "The steps of the session API of {slug} are not approved: a person with the role of approver, other than the "
    "one who brought them in, reads and approves them on the deployment's page."
)


class ApprovalProblem(ValueError):
    """What was asked for cannot be done now; the text is a sentence."""


def digest_of_session(session: Mapping[str, Any]) -> str:
    """SHA-256 of a stored description: URL, methods, paths, bodies, captures and pool."""
    text = json.dumps(session, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def approval_of(deployment: Deployment) -> SessionApproval | None:
    """The word that holds for what is described now; None without one."""
    digest = digest_of_session(deployment.session)
    found = SessionApproval.objects.current().filter(deployment=deployment, digest=digest)
    return found.select_related("approved_by").first() if deployment.session else None


def held_back(deployments: Iterable[Deployment]) -> dict[int, str]:
    """Deployment id -> why its session API may not be asked, for those that describe one and lack an approval."""
    described = {deployment.pk: deployment for deployment in deployments if deployment.session}
    if not described:
        return {}
    approved = set(
        SessionApproval.objects.current()
        .filter(deployment__in=described)
        .values_list("deployment_id", "digest")
    )
    return {
        pk: NOT_APPROVED.format(slug=deployment.slug)
        for pk, deployment in described.items()
        if (pk, digest_of_session(deployment.session)) not in approved
    }


def why_not(deployment: Deployment, user: User) -> str:
    """Why this approver cannot approve what stands there; "" when they can. The role is asked apart."""
    if not deployment.session:
        return f"{deployment.slug} describes no session API any more."
    if deployment.session_author_id == user.pk:
        return "Nobody approves steps that they brought in themselves: it takes a second person."
    if len(json.dumps(deployment.session)) > LARGEST:
        return (
            f"The description is longer than {LARGEST:,} characters, which nobody can read: make it shorter."
        )
    return ""


@transaction.atomic
def approve_session(*, deployment: Deployment, digest: str, actor: User, reason: str = "") -> SessionApproval:
    """Approve what has this digest. Raises `ApprovalProblem`, PermissionDenied."""
    locked = _locked(deployment, actor)
    require(actor, "approve", locked.team)
    if locked.session_author_id == actor.pk:
        raise PermissionDenied(why_not(locked, actor))
    if problem := why_not(locked, actor):
        raise ApprovalProblem(problem)
    if digest != digest_of_session(locked.session):
        raise ApprovalProblem(
            "The steps changed since you read them, so nothing was approved: read them again."
        )
    now = clock.now()
    end_approval(locked, now)
    made = SessionApproval.objects.create(
        deployment=locked, digest=digest, approved_by=actor, reason=reason.strip()[:500], valid_from=now
    )
    record(actor=actor, kind="session.approved", subject=f"deployment:{locked.slug}", digest=digest)
    return made


@transaction.atomic
def withdraw_approval(*, deployment: Deployment, actor: Actor) -> None:
    """Anybody who may edit the deployment may withdraw: that is the safe direction."""
    locked = Deployment.objects.select_for_update(of=("self",)).select_related("team").get(pk=deployment.pk)
    require(actor, "edit_fleet", locked.team)
    if end_approval(locked, clock.now()):
        record(actor=actor, kind="session.withdrawn", subject=f"deployment:{locked.slug}")


def end_approval(deployment: Deployment, at: datetime) -> int:
    """Close the open approval, if there is one. Not recorded here."""
    return SessionApproval.objects.current().filter(deployment=deployment).update(valid_to=at)


def _locked(deployment: Deployment, actor: Actor) -> Deployment:
    if not isinstance(actor, User):
        raise PermissionDenied("A session API is approved by a person.")
    return Deployment.objects.select_for_update(of=("self",)).select_related("team").get(pk=deployment.pk)
