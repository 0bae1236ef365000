"""Makes, checks and revokes API tokens."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction

from kvaudit.server import clock
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.accounts.models import ApiToken, Team, TokenScope, User
from kvaudit.server.accounts.records import record

PREFIX = "kva_"
_SHOWN = len(PREFIX) + 8
_USE_NOTED_EVERY = timedelta(minutes=1)  # one write a minute, not one per request


@transaction.atomic
def create_token(
    *,
    owner: User,
    name: str,
    scopes: Sequence[str],
    actor: Actor,
    team: Team | None = None,
    deployments: Sequence[str] = (),
    expires_at: datetime | None = None,
) -> tuple[ApiToken, str]:
    """(row, the token itself). The token is returned here and never again: only its hash is kept.
    Everybody makes tokens of their own, an administrator for others too. Raises PermissionDenied, and
    ValueError for no scope or one that does not exist."""
    if actor != owner:
        require(actor, "manage_tokens")
    unknown = sorted(set(scopes) - set(TokenScope.values))
    if unknown or not scopes:
        raise ValueError(f"a token's scopes are {' and '.join(TokenScope.values)}, not {unknown or 'none'}")
    secret = PREFIX + secrets.token_hex(4) + secrets.token_urlsafe(30)
    token = ApiToken.objects.create(
        owner=owner,
        name=name,
        prefix=secret[:_SHOWN],
        digest=_digest(secret),
        scopes=sorted(set(scopes)),
        team=team,
        deployments=list(deployments),
        expires_at=expires_at,
    )
    record(actor=actor, kind="token.created", subject=f"token:{token.prefix}")
    return token, secret


def authenticate(secret: str) -> ApiToken | None:
    """The usable token that this secret is, with its owner joined, or None. Notes the use."""
    if not secret.startswith(PREFIX) or len(secret) > 200:
        return None
    at = clock.now()
    digest = _digest(secret)
    token = ApiToken.objects.usable(at).select_related("owner", "team").filter(digest=digest).first()
    if token is None or not hmac.compare_digest(token.digest, digest):
        return None
    if token.last_used_at is None or at - token.last_used_at > _USE_NOTED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=at)
        token.last_used_at = at
    return token


@transaction.atomic
def revoke_token(*, token: ApiToken, actor: Actor) -> None:
    """Stop one's own token, or as an administrator any; the row stays for the record."""
    if actor != token.owner:
        require(actor, "manage_tokens")
    if token.revoked_at is None:
        token.revoked_at = clock.now()
        token.save(update_fields=["revoked_at"])
        record(actor=actor, kind="token.revoked", subject=f"token:{token.prefix}")


def _digest(secret: str) -> str:
    # Unsalted on purpose: 240 random bits cannot be guessed, and the hash is the look-up key.
    return hashlib.sha256(secret.encode()).hexdigest()
