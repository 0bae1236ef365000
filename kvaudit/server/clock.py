"""Tells the time, which is the database's, whatever the clock of this machine says.

Results, states and expiries of all workers and pages are ordered by time, so there must be one time. The
database says it once in a while (at every claim of a worker, at every new connection), and from there this
process counts on with a clock that nobody sets. A machine whose own clock is hours off then records the
same moments as all others; `skew` says how far off it is.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.backends.signals import connection_created

log = logging.getLogger(__name__)

NOTABLE = timedelta(seconds=5)
"""A machine whose clock is this far off says so."""

UNUSABLE = timedelta(seconds=60)
"""A worker whose clock is this far off takes no work: its TLS checks, its broker and whatever else it runs go
by that clock."""

QUICK = 0.5
"""Seconds of a round trip to the database that place its answer well enough."""


@dataclass(frozen=True, slots=True)
class _Anchor:
    """The database said ``moment`` when this process's `_count` stood at ``count``."""

    moment: datetime
    count: float


_anchor: _Anchor | None = None


def now() -> datetime:
    """The moment by database time (UTC). Of a process that has not met the database yet: by its own clock;
    such a one has nothing to record."""
    return _machine() if _anchor is None else _anchor.moment + timedelta(seconds=_count() - _anchor.count)


def skew() -> timedelta:
    """How far the clock of this machine is ahead of the database's; negative: behind."""
    return _machine() - now()


def set_by_database() -> timedelta:
    """Ask the database for the time, count on from its answer, and return the `skew`.

    The answer lies somewhere within the round trip, so a slow one is asked for again, and the quickest of
    three counts.
    """
    global _anchor
    quickest = float("inf")
    for _ in range(3):
        before = _count()
        moment = database_now()
        took = _count() - before
        if took < quickest:
            quickest, _anchor = took, _Anchor(moment, before + took / 2)
        if took < QUICK:
            break
    return skew()


def database_now() -> datetime:
    """The database's own answer, at the cost of a query: for what a transaction compares with its rows."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment


def is_to_come(moment: datetime) -> bool:
    """Whether a recorded moment still lies ahead: then it was written by a clock that was wrong, and nothing may
    count as older than it."""
    return moment > now() + NOTABLE


def in_words(off: timedelta) -> str:
    """'2 h 0 min ahead', '7 s behind'."""
    seconds = abs(round(off.total_seconds()))
    hours, minutes = seconds // 3600, seconds // 60 % 60
    long = f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds % 60} s"
    return f"{long if seconds >= 60 else f'{seconds} s'} {'ahead' if off > timedelta(0) else 'behind'}"


def _machine() -> datetime:
    """What the clock of this machine says."""
    return datetime.now(UTC)


def _count() -> float:
    """Seconds on a clock that nobody sets; where the system has one that goes on while it sleeps, that one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _of_new_connection(**_: Any) -> None:
    """Every process meets the database over a connection, and renews it at least every minute (CONN_MAX_AGE)."""
    set_by_database()


connection_created.connect(_of_new_connection, dispatch_uid="kvaudit.server.clock")
