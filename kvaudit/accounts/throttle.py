"""How often somebody failed lately, counted in the database: every web process sees the same number, and a
restart forgets nothing. Who is counted, and how often is too often, is the caller's business."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.db import connection
from django.utils.crypto import salted_hmac

from kvaudit import clock
from kvaudit.accounts.models import FailedLogins

# One statement, so that two processes that count at once both count.
_COUNT = """
INSERT INTO accounts_failedlogins (key, failures, until) VALUES (%s, 1, %s)
ON CONFLICT (key) DO UPDATE SET
    failures = CASE WHEN accounts_failedlogins.until <= %s THEN 1 ELSE accounts_failedlogins.failures + 1 END,
    until = EXCLUDED.until
"""


def failures(subjects: Iterable[str]) -> dict[str, int]:
    """Remembered failures of each subject; one query."""
    keys = {_key(subject): subject for subject in subjects}
    found = FailedLogins.objects.filter(key__in=keys, until__gt=clock.now())
    counted = {keys[key]: count for key, count in found.values_list("key", "failures")}
    return {subject: counted.get(subject, 0) for subject in keys.values()}


def count(subject: str, remembered: timedelta) -> None:
    """One failure more, remembered from now on; what nobody remembers goes."""
    now = clock.now()
    with connection.cursor() as cursor:
        cursor.execute(_COUNT, [_key(subject), now + remembered, now])
    FailedLogins.objects.filter(until__lte=now).delete()


def forget(subject: str) -> None:
    """The subject starts anew."""
    FailedLogins.objects.filter(key=_key(subject)).delete()


def _key(subject: str) -> str:
    return salted_hmac("kvaudit.accounts.throttle", subject, algorithm="sha256").hexdigest()
