"""Imports of uploaded request logs as queued work: begin, cancel, and end what no worker works on any more."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import IO

from celery import current_app
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone
from kombu.exceptions import OperationalError as BrokerDown

from kvaudit.accounts.access import require
from kvaudit.accounts.models import User
from kvaudit.accounts.sealing import seal
from kvaudit.audits.canonical import clean_text
from kvaudit.fleet.models import Deployment
from kvaudit.inquiries.importing import Zone
from kvaudit.inquiries.models import ImportState, LogImport, LogPart
from kvaudit.inquiries.request_log import NoLog, read
from kvaudit.ledger.services import record

log = logging.getLogger(__name__)

PART = 1024 * 1024
"""Bytes of the file in one row."""

MOST_BYTES = 2 * 1024**3

SILENT = timedelta(seconds=60)
"""A worker writes every second; one that wrote nothing for so long is gone."""

RING_AGAIN = timedelta(seconds=60)
PATIENCE = timedelta(hours=6)
"""How long an import waits for a worker."""

MOST_AT_ONCE = 50

LOST = "The worker that read this log was lost in the middle of it. Nothing was kept: import the log again."
NOBODY = (
    "No worker took this import in time. Nothing was kept: see that workers run, then import the log again."
)


def begin(
    *, deployment: Deployment, file: IO[bytes], size: int, name: str, since: datetime, until: datetime,
    zones: Sequence[Zone], actor: User,
) -> LogImport:  # fmt: skip
    """Store the file, sealed, part by part, and ring for a worker. Raises `NoLog` for what can be seen to be no
    log from its beginning, or is too large; PermissionDenied unless the actor may read evidence."""
    require(actor, "read_evidence", deployment.team)
    if size > MOST_BYTES:
        raise NoLog("The file is larger than 2 GB: import it on the server with manage.py request_log.")
    head = file.read(PART)
    try:
        next(read(io.BytesIO(head)), None)
    except NoLog:
        if head.strip() or len(head) < PART:
            raise
    with transaction.atomic():
        work = LogImport.objects.create(
            deployment=deployment,
            name=clean_text(name, 200) or "request log",
            size=size,
            since=since,
            until=until,
            zones=[zone.as_json() for zone in zones],
            requested_by=actor,
            rung_at=timezone.now(),
        )
        number, stored = 0, 0
        while head:
            LogPart.objects.create(work=work, number=number, sealed=seal(head.decode("latin-1")))
            number, stored = number + 1, stored + len(head)
            head = file.read(PART)
        LogImport.objects.filter(pk=work.pk).update(size=stored)
        work.size = stored
        transaction.on_commit(lambda: _ring(work.pk))
    return work


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
    if now.state == ImportState.QUEUED:
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
    """End imports whose worker fell silent or never came; how many."""
    lost = Q(state=ImportState.RUNNING, seen_at__lt=Now() - SILENT)
    late = Q(state=ImportState.QUEUED, requested_at__lt=Now() - PATIENCE)
    rows = LogImport.objects.filter(lost | late)
    if only is not None:
        rows = rows.filter(pk=only.pk)
    found = list(rows.select_for_update(skip_locked=True, no_key=True).order_by("pk")[:MOST_AT_ONCE])
    for work in found:
        if work.cancel_requested_at:
            end(work, ImportState.CANCELLED)
        else:
            end(work, ImportState.FAILED, LOST if work.state == ImportState.RUNNING else NOBODY)
        log.warning("the import %s of a request log was given up", work.pk)
    return len(found)


def recover() -> None:
    """One pass of beat: close what is lost, ring again for what waits."""
    close_lost()
    waiting = LogImport.objects.filter(state=ImportState.QUEUED, rung_at__lt=Now() - RING_AGAIN)
    for pk in waiting.order_by("pk").values_list("pk", flat=True)[:MOST_AT_ONCE]:
        LogImport.objects.filter(pk=pk).update(rung_at=Now())
        _ring(pk)


def _ring(pk: int) -> None:
    """Without a broker the import stays queued; beat rings again."""
    try:
        current_app.send_task(
            "kvaudit.inquiries.tasks.import_log",
            args=(pk,),
            queue="passive",
            retry_policy={"max_retries": 1, "interval_start": 0.1},
        )
    except (BrokerDown, OSError) as fault:
        log.warning("The import %s waits for the broker, which does not answer: %s", pk, fault)
