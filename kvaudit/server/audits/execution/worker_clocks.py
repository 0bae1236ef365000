"""Keeps how far the clocks of workers are off, where pages and metrics find it, and decides whether a worker
may work."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import timedelta

from django.db import connection
from django.db.models.functions import Now

from kvaudit.server import clock
from kvaudit.server.audits.models import WorkerClock
from kvaudit.server.audits.models.worker_clocks import is_unusable

log = logging.getLogger(__name__)

TELL = 15.0
"""Seconds between two notes of one process while nothing changes."""

LOG_AGAIN = 300.0
RECENT = timedelta(minutes=10)
"""A worker that has not been heard of for longer is gone."""


@dataclass(slots=True)
class _LastReport:
    """What this process has said last, so that it does not say it with every task."""

    noted: float = float("-inf")
    logged: float = float("-inf")
    standing: int = -1


_last_report = _LastReport()


def may_work(name: str) -> bool:
    """Ask the database for the time, note how far this machine's clock is off, and say whether the worker
    ``name`` may take work."""
    off = clock.set_by_database()
    standing = (abs(off) >= clock.NOTABLE) + is_unusable(off)
    count, changed = time.monotonic(), standing != _last_report.standing
    if standing and (changed or count - _last_report.logged >= LOG_AGAIN):
        _last_report.logged = count
        _say(name, off)
    elif changed and _last_report.standing > 0:
        log.warning("the clock of %s goes with the database's again", name)
    if changed or count - _last_report.noted >= TELL:
        _last_report.noted = count
        _note(name, off)
    _last_report.standing = standing
    return not is_unusable(off)


def recent() -> list[WorkerClock]:
    """Workers that were heard of lately, by name."""
    return list(WorkerClock.objects.filter(seen_at__gte=Now() - RECENT).order_by("name"))


def sentence(worker: WorkerClock) -> str:
    """What is wrong with this clock; "" where nothing is."""
    if abs(worker.off) < clock.NOTABLE:
        return ""
    what = "it takes no work until that is put right" if worker.refuses else "put it right"
    return f"The clock of worker {worker.name} is {clock.in_words(worker.off)} compared with the database's: {what}."


def _say(name: str, off: timedelta) -> None:
    if is_unusable(off):
        log.error(
            "the clock of this machine is %s compared with the database's: %s takes no work until it is put right"
            " (NTP)",
            clock.in_words(off),
            name,
        )
    else:
        log.warning(
            "the clock of this machine is %s compared with the database's: put it right (NTP)",
            clock.in_words(off),
        )


def _note(name: str, off: timedelta) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO audits_workerclock (name, skew, seen_at) VALUES (%s, %s, clock_timestamp())"
            " ON CONFLICT (name) DO UPDATE SET skew = excluded.skew, seen_at = excluded.seen_at",
            [name[:200], off.total_seconds()],
        )
