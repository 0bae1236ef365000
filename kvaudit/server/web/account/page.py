"""What the page of one's own account shows of the ledger."""

from __future__ import annotations

from collections.abc import Sequence

from kvaudit.server.accounts.models import User
from kvaudit.server.ledger.models import Entry
from kvaudit.server.ledger.searching import newest_sequence

LOOKED_AT, MOST_LOGINS = 20_000, 10


def logins_of(user: User) -> Sequence[Entry]:
    """The newest logins of the user, and failures under the name, among the newest entries of the ledger."""
    recent = Entry.objects.filter(sequence__gt=newest_sequence() - LOOKED_AT)
    theirs = recent.filter(
        kind__in=("session.began", "login.failed"), subject__startswith=f"user:{user.get_username()} "
    )
    return list(theirs.order_by("-sequence")[:MOST_LOGINS])
