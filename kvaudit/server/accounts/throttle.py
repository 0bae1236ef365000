"""Counts in the database how often somebody failed lately: every web process sees the same number, and a
restart forgets nothing. Who is counted, and how often is too often, is the caller's business."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.db import connection
from django.utils.crypto import salted_hmac

from kvaudit.server import clock
from kvaudit.server.accounts.models import FailedLogins

# One statement, so that two processes that count at once both count.
_COUNT = """
INSERT INTO accounts_failedlogins (key, failures, until) VALUES (%s, 1, %s)
ON CONFLICT (key) DO UPDATE SET
    failures = CASE WHEN accounts_failedlogins.until <= %s THEN 1 ELSE accounts_failedlogins.failures + 1 END,
    until = EXCLUDED.until
RETURNING failures
"""

# The one that comes first takes the turn; who comes before the next one changes nothing.
_TURN = """
INSERT INTO accounts_failedlogins (key, failures, until) VALUES (%s, 0, %s)
ON CONFLICT (key) DO UPDATE SET until = EXCLUDED.until WHERE accounts_failedlogins.until <= %s
"""


def failures(subjects: Iterable[str]) -> dict[str, int]:
    """Remembered failures of each subject; one query."""
    keys = {_key(subject): subject for subject in subjects}
    found = FailedLogins.objects.filter(key__in=keys, until__gt=clock.now())
    counted = {keys[key]: count for key, count in found.values_list("key", "failures")}
    return {subject: counted.get(subject, 0) for subject in keys.values()}


def count(subject: str, remembered: timedelta) -> int:
    """One failure more, remembered from now on; how many that makes. What nobody remembers goes."""
    now = clock.now()
    with connection.cursor() as cursor:
        cursor.execute(_COUNT, [_key(subject), now + remembered, now])
        made = int(cursor.fetchone()[0])
    FailedLogins.objects.filter(until__lte=now).delete()
    return made


def forget(subject: str) -> None:
    """The subject starts anew."""
    FailedLogins.objects.filter(key=_key(subject)).delete()


def turn(subject: str, every: timedelta) -> bool:
    """Whether it is the subject's turn, which comes once in ``every``; asking too early does not put it off."""
    now = clock.now()
    with connection.cursor() as cursor:
        cursor.execute(_TURN, [_key(f"turn {subject}"), now + every, now])
        return bool(cursor.rowcount == 1)


def _key(subject: str) -> str:
    return salted_hmac("kvaudit.accounts.throttle", subject, algorithm="sha256").hexdigest()
