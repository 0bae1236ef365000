"""Queues and cancels imports of uploaded request logs, and ends those that nobody works on any more. How a file
comes here is in `receiving`."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from kvaudit.server import broker
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.models import User
from kvaudit.server.inquiries.request_logs.models import ImportState, LogImport, LogPart
from kvaudit.server.ledger.services import record

log = logging.getLogger(__name__)

SILENT = timedelta(seconds=60)
"""A worker writes every second; one that wrote nothing for so long is gone."""

STALLED = timedelta(minutes=10)
"""An upload of which nothing came for so long has been given up; a megabyte a minute is still an upload."""

RESEND_AFTER = timedelta(seconds=60)
PATIENCE = timedelta(hours=6)
"""How long an import waits for a worker."""

MOST_AT_ONCE = 50

LOST = "The worker that read this log was lost in the middle of it. Nothing was kept: import the log again."
BROKEN_OFF = "The upload broke off before the whole file had come. Nothing was kept: import the log again."
NOBODY = (
    "No worker took this import in time. Nothing was kept: see that workers run, then import the log again."
)
_GIVEN_UP = {
    ImportState.RECEIVING: BROKEN_OFF,
    ImportState.QUEUED: NOBODY,
    ImportState.RUNNING: LOST,
}


@transaction.atomic
def queue(work: LogImport) -> bool:
    """Let a worker read what was received; False where the import had ended meanwhile."""
    received = LogImport.objects.filter(pk=work.pk, state=ImportState.RECEIVING)
    queued = received.update(state=ImportState.QUEUED, requested_at=Now(), rung_at=Now(), seen_at=None)
    transaction.on_commit(lambda: _notify_worker(work.pk) if queued else None)
    return bool(queued)


@transaction.atomic
def cancel(*, work: LogImport, actor: User) -> bool:
    """Stop it: at once where no worker has it, else within seconds. False where it had already ended."""
    require(actor, "read_evidence", work.deployment.team)
    now = LogImport.objects.select_for_update(no_key=True).get(pk=work.pk)
    if not now.live:
        return False
    if now.cancel_requested_at is None:
        subject = f"deployment:{work.deployment.slug}"
        record(actor=actor, kind="request_log.cancelled", subject=subject)
        LogImport.objects.filter(pk=now.pk).update(cancel_requested_at=Now())
    if now.state != ImportState.RUNNING:
        end(now, ImportState.CANCELLED)
    return True


def end(work: LogImport, state: ImportState, sentence: str = "") -> None:
    """Within a transaction that holds the row's lock. The file goes with it."""
    LogImport.objects.filter(pk=work.pk).update(
        state=state, sentence=sentence[:400], finished_at=Now(), token=None
    )
    LogPart.objects.filter(work=work).delete()


@transaction.atomic
def close_lost(only: LogImport | None = None) -> int:
    """End imports whose sender or worker fell silent or never came; how many."""
    stalled = Q(state=ImportState.RECEIVING, seen_at__lt=Now() - STALLED)
    lost = Q(state=ImportState.RUNNING, seen_at__lt=Now() - SILENT)
    late = Q(state=ImportState.QUEUED, requested_at__lt=Now() - PATIENCE)
    rows = LogImport.objects.filter(stalled | lost | late)
    if only is not None:
        rows = rows.filter(pk=only.pk)
    found = list(rows.select_for_update(skip_locked=True, no_key=True).order_by("pk")[:MOST_AT_ONCE])
    for work in found:
        if work.cancel_requested_at:
            end(work, ImportState.CANCELLED)
        else:
            end(work, ImportState.FAILED, _GIVEN_UP[ImportState(work.state)])
        log.warning("the import %s of a request log was given up", work.pk)
    return len(found)


def recover() -> None:
    """One pass of beat: close what is lost, send again what waits."""
    close_lost()
    waiting = LogImport.objects.filter(state=ImportState.QUEUED, rung_at__lt=Now() - RESEND_AFTER)
    for pk in waiting.order_by("pk").values_list("pk", flat=True)[:MOST_AT_ONCE]:
        LogImport.objects.filter(pk=pk).update(rung_at=Now())
        _notify_worker(pk)


def _notify_worker(pk: int) -> None:
    broker.notify_worker(
        "kvaudit.inquiries.tasks.import_log", pk, queue="passive", waiting=f"The import {pk} waits"
    )
