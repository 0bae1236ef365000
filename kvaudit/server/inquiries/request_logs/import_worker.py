"""Imports an uploaded request log in a worker: claims it, reads it, keeps all of it or nothing."""

from __future__ import annotations

import io
import logging
import time
import uuid
from typing import IO, Any, cast

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models.functions import Now

from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.sealed_fields import place_of
from kvaudit.server.accounts.sealing import SealBroken, unseal
from kvaudit.server.inquiries.request_logs import import_queue
from kvaudit.server.inquiries.request_logs.classification import Zone
from kvaudit.server.inquiries.request_logs.importer import Progress, keep, read_all
from kvaudit.server.inquiries.request_logs.models import ImportState, LogImport, LogPart
from kvaudit.server.inquiries.request_logs.reader import NoLog

log = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between two signs of life."""

BROKE = (
    "The import broke off; the worker's log names the cause. Nothing was kept. A very large log is better imported "
    "on the server with manage.py request_log."
)
FORBIDDEN = "Whoever began this import may no longer read this deployment's evidence. Nothing was kept."
INCOMPLETE = "The stored file is not complete: import the log again."


class Cancelled(Exception):
    """Somebody asked to stop."""


class NoLongerOurs(Exception):
    """The import was given up meanwhile: nothing of it may be written."""


class Parts(io.RawIOBase):
    """The stored file, one part in memory."""

    def __init__(self, work: LogImport) -> None:
        super().__init__()
        self._work, self._number, self._rest = work, 0, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        if not self._rest:
            part = LogPart.objects.filter(work=self._work, number=self._number).first()
            if part is None:
                return 0
            text = unseal(part.sealed, place_of(part, "sealed"), sent_to=())
            self._rest = memoryview(text.encode("latin-1"))
            self._number += 1
        taken = self._rest[: len(into)]
        into[: len(taken)] = taken
        self._rest = self._rest[len(taken) :]
        return len(taken)


class Pulse:
    """Writes progress at most every `EVERY` seconds, and hears of a cancel by it."""

    def __init__(self, work: LogImport) -> None:
        self._work, self._last = work, time.monotonic() - EVERY  # the first one at once

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() - self._last < EVERY:
            return
        self._last = time.monotonic()
        ours = LogImport.objects.filter(pk=self._work.pk, token=self._work.token, state=ImportState.RUNNING)
        if not ours.update(
            seen_at=Now(),
            rows_read=progress.rows,
            bytes_read=progress.bytes,
            problem_count=progress.problems,
        ):
            raise NoLongerOurs
        if ours.filter(cancel_requested_at__isnull=False).exists():
            raise Cancelled


def import_log(pk: int) -> None:
    """Do a queued import; one that runs, or has ended, is left alone. May be called any number of times."""
    import_queue.close_lost()
    work = _claim(pk)
    if work is None:
        return
    try:
        _do(work)
    except NoLongerOurs:
        log.warning("the import %s was given up while it was read", pk)
    except Cancelled:
        _end(work, ImportState.CANCELLED)
    except (NoLog, SealBroken) as fault:
        _end(work, ImportState.FAILED, f"{fault} Nothing was kept.")
    except PermissionDenied:
        _end(work, ImportState.FAILED, FORBIDDEN)
    except Exception:
        log.exception("the import %s of a request log broke off", pk)
        _end(work, ImportState.FAILED, BROKE)


def _claim(pk: int) -> LogImport | None:
    queued = LogImport.objects.filter(pk=pk, state=ImportState.QUEUED)
    if not queued.update(state=ImportState.RUNNING, token=uuid.uuid4(), seen_at=Now()):
        return None
    return LogImport.objects.select_related("deployment__team", "requested_by").get(pk=pk)


def _do(work: LogImport) -> None:
    actor = work.requested_by
    if actor is None:
        raise PermissionDenied
    require(actor, "read_evidence", work.deployment.team)
    zones = [Zone.from_json(kept) for kept in work.zones]
    file = cast(IO[bytes], io.BufferedReader(Parts(work)))
    source, tally = read_all(work.deployment, file, work.since, work.until, zones, Pulse(work))
    with transaction.atomic():
        now = _locked(work)
        if now.cancel_requested_at:
            raise Cancelled
        if source.size != work.size:
            raise NoLog(INCOMPLETE)
        kept = keep(work.deployment, source, work.name, work.since, work.until, zones, tally, actor)
        LogImport.objects.filter(pk=work.pk).update(
            log=kept, rows_read=tally.lines, bytes_read=source.size, problem_count=tally.problem_count
        )
        import_queue.end(now, ImportState.FINISHED)


@transaction.atomic
def _end(work: LogImport, state: ImportState, sentence: str = "") -> None:
    try:
        import_queue.end(_locked(work), state, sentence)
    except NoLongerOurs:
        log.warning("the import %s had ended meanwhile", work.pk)


def _locked(work: LogImport) -> LogImport:
    ours = LogImport.objects.select_for_update(no_key=True).filter(pk=work.pk, token=work.token)
    found = ours.filter(state=ImportState.RUNNING).first()
    if found is None:
        raise NoLongerOurs
    return found
