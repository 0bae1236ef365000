"""Counts numbers for Prometheus in the database when asked.

The processes of web and workers share nothing, so a counter in memory would be one process's share;
rows are everybody's. Every question is answered by a partial index, so a scrape does not grow with
history.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import DatabaseError
from django.db.models import Count, Max, Min
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock, disk
from kvaudit.server.audits.execution import worker_clocks
from kvaudit.server.audits.models import CheckState, Overdue, Run, RunState
from kvaudit.server.ledger.models import Entry
from kvaudit.server.notify.models import Delivery, OutboxMessage


class DatabaseCollector:
    """Yields one family per question, asked at scrape time."""

    def collect(self) -> Iterator[Metric]:
        """The families; a database that does not answer is itself a number."""
        yield from _room()
        up = GaugeMetricFamily("kvaudit_database_up", "1 when the database answered this scrape.")
        try:
            families = [_states(), *_runs(), _overdue(), _outbox(), _ledger(), *_clocks()]
        except DatabaseError:
            families = []
        up.add_metric([], 1 if families else 0)
        yield up
        yield from families


def _states() -> Metric:
    family = GaugeMetricFamily(
        "kvaudit_check_states",
        "Current states of checks, by check and verdict; expired ones apart.",
        labels=["check", "verdict"],
    )
    current: Any = CheckState.objects.current()  # Any: mypy's plugin does not know the annotation "expired"
    rows = current.values("check_id", "expired", "verdict").annotate(rows=Count("pk"))
    counts: dict[tuple[str, str], int] = {}
    for row in rows.order_by():
        verdict = "expired" if row["expired"] else row["verdict"]
        counts[row["check_id"], verdict] = counts.get((row["check_id"], verdict), 0) + row["rows"]
    # Zeros as well: an alert on a series that is not there never fires.
    for check in sorted({check for check, _ in counts}):
        for verdict in (*(each.value for each in Verdict), "expired"):
            family.add_metric([check, verdict], counts.get((check, verdict), 0))
    return family


def _runs() -> Iterator[Metric]:
    count = GaugeMetricFamily("kvaudit_runs", "Runs that wait or run, by kind.", labels=["kind", "state"])
    age = GaugeMetricFamily(
        "kvaudit_oldest_due_run_seconds",
        "How long the oldest due run has waited for a worker.",
        labels=["kind"],
    )
    now = clock.now()
    for kind in ("passive", "active"):
        pending = Run.objects.filter(kind=kind)
        for state in (RunState.QUEUED, RunState.RUNNING):
            count.add_metric([kind, state.value], pending.filter(state=state).count())
        due = pending.filter(state=RunState.QUEUED, not_before__lte=now).aggregate(oldest=Min("not_before"))[
            "oldest"
        ]
        age.add_metric([kind], (now - due).total_seconds() if due else 0)
    yield count
    yield age


def _overdue() -> Metric:
    text = "Plans whose audit of a deployment is overdue."
    return GaugeMetricFamily("kvaudit_overdue", text, value=Overdue.objects.open().count())


def _outbox() -> Metric:
    text = "Notifications not delivered yet."
    waiting = OutboxMessage.objects.filter(state=Delivery.PENDING).count()
    return GaugeMetricFamily("kvaudit_notifications_waiting", text, value=waiting)


def _ledger() -> Metric:
    last = Entry.objects.aggregate(last=Max("sequence"))["last"]
    return GaugeMetricFamily("kvaudit_ledger_entries", "Entries of the ledger.", value=last or 0)


def _clocks() -> Iterator[Metric]:
    """How far machines are off: workers as they last said, and the one that answers this."""
    worker = GaugeMetricFamily(
        "kvaudit_worker_clock_skew_seconds",
        "How far the clock of a worker's machine is ahead of the database's; one that is 60 s off takes no work.",
        labels=["worker"],
    )
    for each in worker_clocks.recent():
        worker.add_metric([each.name], each.skew)
    yield worker
    yield GaugeMetricFamily(
        "kvaudit_web_clock_skew_seconds",
        "How far the clock of the machine that answers this is ahead of the database's.",
        value=clock.set_by_database().total_seconds(),
    )


def _room() -> Iterator[Metric]:
    """The disk of the state folder, where this is one machine."""
    found = disk.room(Path(settings.STATE_FOLDER)) if settings.STATE_FOLDER else None
    if found is not None:
        text = "Bytes left on the disk of the state folder."
        yield GaugeMetricFamily("kvaudit_state_free_bytes", text, value=found.free)
        yield GaugeMetricFamily("kvaudit_state_size_bytes", "Size of that disk.", value=found.size)


def exposition() -> tuple[bytes, str]:
    """The text of a scrape and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(DatabaseCollector())
    return generate_latest(registry), CONTENT_TYPE_LATEST
