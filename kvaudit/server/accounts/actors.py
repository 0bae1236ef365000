"""Who acts: a user, an API token, or a part of the system, under one name for the records."""

from __future__ import annotations

from kvaudit.server.accounts.models import ApiToken, User

Actor = User | ApiToken | str
"""A string is ``system:PART`` (``system:beat``) or ``command:NAME``."""


def actor_name(actor: Actor) -> str:
    """``user:alice``, ``token:kva_1a2b3c4d`` or the string itself, as stored in records."""
    if isinstance(actor, User):
        return f"user:{actor.get_username()}"
    if isinstance(actor, ApiToken):
        return f"token:{actor.prefix}"
    if not actor:
        raise ValueError("an act needs an actor: a user, a token or a name such as system:beat")
    return actor
