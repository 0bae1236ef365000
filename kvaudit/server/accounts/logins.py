"""Records logins, logouts and failures, and what was taken out, as entries of the ledger: few enough that
nobody can fill it.

Failures are told at the first, the tenth, the hundredth ... of a name, and no more than `MOST_AN_HOUR` in an hour; the
same thing taken by the same person is told once in `TAKEN_AGAIN`.
"""

from __future__ import annotations

from datetime import timedelta

from kvaudit.server import clock
from kvaudit.server.accounts import throttle
from kvaudit.server.accounts.models import User
from kvaudit.server.accounts.records import record

MOST_AN_HOUR = 100
TAKEN_AGAIN = timedelta(minutes=10)


def note_login(user: User, *, address: str, browser: str) -> None:
    record(
        actor=user,
        kind="session.began",
        subject=f"user:{user.get_username()} from {address}, {browser}"[:300],
    )


def note_logout(user: User) -> None:
    record(actor=user, kind="session.ended", subject=f"user:{user.get_username()} logged out")


def note_failure(name: str, *, address: str, failures: int) -> None:
    """``failures`` counts those of the name. A name that is nobody's is not written down: people type passwords
    where the name goes."""
    if not _is_power_of_ten(failures) or _too_many():
        return
    known = "\x00" not in name and User.objects.filter(username=name).exists()
    who = f"user:{name}" if known else "unknown-user:-"
    times = "once" if failures == 1 else f"{failures} times"
    record(actor="system:web", kind="login.failed", subject=f"{who} {times}, last from {address}"[:300])


def note_taken(user: User, *, kind: str, subject: str) -> None:
    """Something was read or downloaded that leaves this place; written before it goes."""
    if throttle.turn(repr(("taken", user.pk, kind, subject)), TAKEN_AGAIN):
        record(actor=user, kind=kind, subject=subject[:300])


def _is_power_of_ten(number: int) -> bool:
    return number > 0 and str(number).strip("0") == "1"


def _too_many() -> bool:
    made = throttle.count(f"login failures told {clock.now():%Y-%m-%d %H}", timedelta(hours=1))
    if made == MOST_AN_HOUR:
        record(
            actor="system:web",
            kind="login.failed",
            subject="further failures of this hour are not told one by one",
        )
    return made >= MOST_AN_HOUR
