"""Lists and ends sessions, for their owner or for an administrator."""

from __future__ import annotations

import re
from collections.abc import Sequence

from django.db import transaction

from kvaudit.server import clock
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.accounts.models import ApiToken, Session, User
from kvaudit.server.accounts.records import record

_PROGRAMS = (("Edge", "Edg"), ("Opera", "OPR/"), ("Firefox", "Firefox/"), ("Chrome", "Chrom"), ("Safari", "Safari/"),
             ("curl", "curl/"))  # fmt: skip
_SYSTEMS = (("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("Windows", "Windows"), ("macOS", "Mac OS"),
            ("ChromeOS", "CrOS"), ("Linux", "Linux"))  # fmt: skip


def browser_of(agent: str) -> str:
    """``Firefox on Linux``, for a person to recognise; never the header itself, which anybody may write."""
    program = next((name for name, mark in _PROGRAMS if mark in agent), "")
    system = next((name for name, mark in _SYSTEMS if mark in agent), "")
    if not program and not system:
        return "another program" if re.search(r"\w", agent) else "unknown"
    return f"{program or 'a browser'} on {system}" if system else program


def sessions_of(user: User) -> Sequence[Session]:
    """Those that last, the one used last first."""
    return list(Session.objects.filter(user=user).lasting(clock.now()).order_by("-last_used_at", "-pk"))


@transaction.atomic
def end_session(*, session: Session, actor: Actor) -> None:
    """Log one browser out. Everybody ends their own, an administrator of every team anybody's."""
    assert session.user is not None
    if actor != session.user:
        require(actor, "manage_accounts")
    if Session.objects.filter(pk=session.pk).delete()[0]:
        record(actor=actor, kind="session.ended", subject=f"user:{session.user.get_username()} one session")


@transaction.atomic
def end_sessions(*, user: User, actor: Actor, but: Session | None = None) -> int:
    """Log a user out everywhere, or everywhere else; how many sessions that were."""
    if actor != user:
        require(actor, "manage_accounts")
    ended = end_quietly(user, but)
    if ended:
        record(actor=actor, kind="session.ended", subject=f"user:{user.get_username()} {ended} sessions")
    return ended


def end_quietly(user: User, but: Session | None = None) -> int:
    """As `end_sessions`, for an act that is recorded itself."""
    theirs = Session.objects.filter(user=user)
    if but is not None:
        theirs = theirs.exclude(pk=but.pk)
    lasting = theirs.lasting(clock.now()).count()
    theirs.delete()
    return lasting


def revoke_tokens(user: User) -> int:
    """Every API token of the user stops working; the rows stay for the record."""
    return ApiToken.objects.filter(owner=user, revoked_at=None).update(revoked_at=clock.now())
