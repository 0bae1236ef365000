"""Seals generated text with a public key, and opens it with a private one that only the web has.

Nobody can tell a model's prose from a customer's (checks.md, Budgets), so no worker can read what it kept.
"""

from __future__ import annotations

import base64

from django.conf import settings
from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox

from kvaudit.auditor.prober.replies import Seal
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.audits.evidence.store import body_of
from kvaudit.server.audits.models import Evidence, Run
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.services import record

KIND = "sealed"


class CannotOpen(Exception):
    """A sentence for the person who asked: why this text stays closed."""


def sealer() -> Seal | None:
    """Seals text for the holder of the private key; None without a public key: text is not kept at all."""
    if not settings.SEAL_PUBLIC_KEY:
        return None
    return SealedBox(PublicKey(base64.urlsafe_b64decode(settings.SEAL_PUBLIC_KEY))).encrypt


def open_for(*, run: Run, evidence: Evidence, reason: str, actor: Actor) -> str:
    """Record that the actor opens this text and why, then open it; an attempt that fails is recorded as
    well. Raises `CannotOpen`, PermissionDenied."""
    require(actor, "read_evidence", run.deployment.team)
    try:
        body = body_of(evidence)
    except ValueError as damaged:
        raise CannotOpen(f"{damaged}") from None
    record(
        actor=actor,
        kind="evidence.opened",
        subject=f"run:{run.pk} evidence:{evidence.pk} reason: {reason}"[:300],
        digest=digest_of([run.pk, evidence.pk, reason]),
    )
    return _open(body)


def _open(body: bytes) -> str:
    if not settings.SEAL_PRIVATE_KEY:
        raise CannotOpen(
            "This installation holds no private key for sealed text: give SEAL_PRIVATE_KEY to the web process."
        )
    box = SealedBox(PrivateKey(base64.urlsafe_b64decode(settings.SEAL_PRIVATE_KEY)))
    try:
        return box.decrypt(body).decode("utf-8", "replace")
    except (CryptoError, ValueError):
        raise CannotOpen(
            "The private key does not fit: the text was sealed with another key, or its bytes are damaged."
        ) from None
