"""Makes, replaces and ends attestations; each has evidence and an expiry, and none is edited."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from datetime import datetime

from django.core.exceptions import PermissionDenied, ValidationError
from django.core.validators import URLValidator
from django.db import transaction

from kvaudit.server import clock
from kvaudit.server.accounts.access import can, require
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.audits.evidence.canonical import clean_text
from kvaudit.server.audits.models import Evidence
from kvaudit.server.checklists import time_limits
from kvaudit.server.checklists.models import Attestation
from kvaudit.server.checklists.scope import ClaimProblem, Scope, item_of
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.services import record

_links = URLValidator(schemes=("https", "http"))


@dataclass(frozen=True, slots=True)
class File:
    """What somebody attached: its bytes as they came, and what they called it."""

    name: str
    body: bytes
    content_type: str = ""


@transaction.atomic
def attest(
    *,
    item: str,
    statement: str,
    expires_at: datetime,
    actor: User,
    deployment: Deployment | None = None,
    team: Team | None = None,
    link: str = "",
    file: File | None = None,
) -> Attestation:
    """State that an item holds, for one deployment or all of a team. The one that held before is
    closed. Raises ClaimProblem with a sentence, PermissionDenied for whoever may not."""
    scope = Scope.of(deployment, team)
    _person(actor)
    require(actor, "attest", scope.team)
    found = item_of(scope.team, item)
    if not found.attestable and not found.parts:
        raise ClaimProblem(
            f"Item {found.key} is decided by {', '.join(found.checks)}: a statement cannot stand in for it."
        )
    now = clock.now()
    said, link = clean_text(statement.strip(), 4_000), _link(link)
    if not said:
        raise ClaimProblem("Say what you attest: what holds, how you know, and for which configuration.")
    if file is None and not link:
        raise ClaimProblem("An attestation needs evidence: attach a file or give a link.")
    check_expiry(expires_at, now, time_limits.longest_attestation(), "An attestation")
    # Two at once would both find nothing to close: they queue on what they are about.
    _lock(scope)
    evidence = store(file) if file is not None else None
    Attestation.objects.filter(item=found.key, valid_to=None, **scope.columns).update(
        valid_to=now, ended_by=actor, end_reason="replaced"
    )
    attestation = Attestation.objects.create(
        item=found.key,
        statement=said,
        link=link,
        evidence=evidence,
        evidence_name=clean_text(file.name, 200) if file is not None else "",
        author=actor,
        valid_from=now,
        expires_at=expires_at,
        **scope.columns,
    )
    record(
        actor=actor,
        kind="attestation.made",
        subject=f"{scope.subject} item:{found.key} attestation:{attestation.pk}",
        digest=digest_of(
            [
                said,
                link,
                evidence.pk if evidence else "",
                expires_at.isoformat(),
                attestation.valid_from.isoformat(),
            ]
        ),
    )
    return attestation


@transaction.atomic
def end_attestation(*, attestation: Attestation, reason: str, actor: User) -> Attestation:
    """Take one's own statement back, or as an approver somebody else's. From now on the item stands as
    its checks say. Raises ClaimProblem when it has ended already."""
    _person(actor)
    locked = Attestation.objects.select_for_update(of=("self",)).get(pk=attestation.pk)
    scope = Scope.of(locked.deployment, locked.team)
    if locked.author_id != actor.pk and not can(actor, "approve", scope.team):
        raise PermissionDenied("An attestation is taken back by its author or by an approver.")
    require(actor, "attest", scope.team)
    if locked.valid_to is not None:
        raise ClaimProblem("This attestation has ended already.")
    why = clean_text(reason.strip(), 500)
    if not why:
        raise ClaimProblem("Say why the statement no longer holds.")
    locked.valid_to, locked.ended_by, locked.end_reason = clock.now(), actor, why
    locked.save(update_fields=["valid_to", "ended_by", "end_reason"])
    record(
        actor=actor,
        kind="attestation.ended",
        subject=f"{scope.subject} item:{locked.item} attestation:{locked.pk}",
        digest=digest_of([why]),
    )
    return locked


def store(file: File) -> Evidence:
    """Keep the bytes under their SHA-256. They are nobody's answer, so nothing is redacted. Raises
    ClaimProblem for an empty or too large file."""
    if not file.body:
        raise ClaimProblem("The attached file is empty.")
    if len(file.body) > time_limits.LARGEST_EVIDENCE:
        raise ClaimProblem(
            f"The file has {len(file.body):,} bytes; at most {time_limits.LARGEST_EVIDENCE:,} are kept. "
            "Attach the page that matters, or give a link."
        )
    name = hashlib.sha256(file.body).hexdigest()
    row = Evidence(
        sha256=name,
        content_type=clean_text(file.content_type, 100),
        size=len(file.body),
        body=zlib.compress(file.body, 6),
    )
    Evidence.objects.bulk_create([row], ignore_conflicts=True)
    return Evidence.objects.get(pk=name)


def check_expiry(expires_at: datetime, now: datetime, longest: object, what: str) -> None:
    """Raises ClaimProblem unless it ends, in the future, and not later than it may."""
    if expires_at <= now:
        raise ClaimProblem(f"{what} ends in the future: choose a later date.")
    if expires_at > now + longest:  # type: ignore[operator]
        last = now + longest  # type: ignore[operator]
        raise ClaimProblem(
            f"{what} ends after {longest.days} days at the latest, "  # type: ignore[attr-defined]
            f"so on {last:%Y-%m-%d} (UTC) or before."
        )


def _link(text: str) -> str:
    link = text.strip()
    if not link:
        return ""
    try:
        _links(link)
    except ValidationError:
        raise ClaimProblem("The link must be an http or https address.") from None
    if len(link) > 500:
        raise ClaimProblem("The link has more than 500 characters.")
    return link


def _person(actor: Actor) -> None:
    if not isinstance(actor, User):
        raise PermissionDenied("A statement is made by a person.")


def _lock(scope: Scope) -> None:
    if scope.deployment is not None:
        Deployment.objects.select_for_update(no_key=True, of=("self",)).get(pk=scope.deployment.pk)
    else:
        Team.objects.select_for_update(no_key=True).get(pk=scope.team.pk)
