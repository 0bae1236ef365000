"""Receives a request log from a browser: as it comes it is sealed and stored, part by part. Nothing of it lies
anywhere in clear, and no more of it than one part in memory."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from datetime import datetime
from typing import IO, NoReturn

from django.db.models.functions import Now

from kvaudit.server import clock
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.models import User
from kvaudit.server.accounts.sealed_fields import place_of
from kvaudit.server.accounts.sealing import seal
from kvaudit.server.audits.evidence.canonical import clean_text
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.inquiries.request_logs import import_queue
from kvaudit.server.inquiries.request_logs.classification import Zone
from kvaudit.server.inquiries.request_logs.models import LIVE, ImportState, LogImport, LogPart
from kvaudit.server.inquiries.request_logs.reader import NoLog, read

PART = 1024 * 1024
"""Bytes of the file in one row."""

MOST_BYTES = 2 * 1024**3
MOST_LIVE = 5
"""Imports of one deployment that are received, wait or are read; each may hold `MOST_BYTES` in the database."""

EVERY = 1.0
"""Seconds between two signs of life."""

TOO_LARGE = "The file is larger than 2 GB: import it on the server with manage.py request_log."
ENDED = "The import was ended before the whole file had come."


class Receiver:
    """One file on its way. `write` what comes, then `queue` it; whatever else happens, `drop` it."""

    def __init__(self, *, deployment: Deployment, name: str, actor: User) -> None:
        """Raises PermissionDenied unless the actor may read evidence, `NoLog` where too many imports are live."""
        require(actor, "read_evidence", deployment.team)
        if LogImport.objects.filter(deployment=deployment, state__in=LIVE).count() >= MOST_LIVE:
            raise NoLog(
                f"{MOST_LIVE} imports for this deployment are not done yet: wait for one, or cancel it."
            )
        now = clock.now()
        self.work: LogImport | None = LogImport.objects.create(
            deployment=deployment,
            name=clean_text(name, 200) or "request log",
            size=0,
            since=now,
            until=now,
            requested_by=actor,
            state=ImportState.RECEIVING,
            seen_at=now,
        )
        self._rest = bytearray()
        self._number, self._size, self._told = 0, 0, time.monotonic()

    def write(self, chunk: bytes) -> None:
        """Raises `NoLog` for what can be seen to be no log from its beginning, for a file that is too large, and where
        somebody ended the import meanwhile; then nothing of it is left."""
        self._size += len(chunk)
        if self._size > MOST_BYTES:
            self._refuse(TOO_LARGE)
        self._rest += chunk
        while len(self._rest) >= PART:
            self._store(bytes(self._rest[:PART]), whole=False)
            del self._rest[:PART]
        if time.monotonic() - self._told >= EVERY:
            self._tell()

    def queue(self, *, since: datetime, until: datetime, zones: Sequence[Zone]) -> LogImport:
        """The whole file has come: let a worker read it. Raises `NoLog`, as `write` does."""
        if self._rest or not self._number:
            self._store(bytes(self._rest), whole=True)
            self._rest.clear()
        work = self._tell()
        work.since, work.until, work.zones = since, until, [zone.as_json() for zone in zones]
        work.save(update_fields=["since", "until", "zones"])
        if not import_queue.queue(work):
            self._refuse(ENDED)
        self.work = None
        work.refresh_from_db()
        return work

    def drop(self) -> None:
        """Leave nothing behind of a file that was not queued. May be called at any time."""
        work, self.work = self.work, None
        if work is not None:
            LogPart.objects.filter(
                work=work
            ).delete()  # of one that was ended meanwhile, the part that came after
            LogImport.objects.filter(pk=work.pk, state=ImportState.RECEIVING).delete()
        self._rest.clear()

    def _store(self, part: bytes, *, whole: bool) -> None:
        if self._number == 0:
            self._look_at(part, whole)
        work = self._tell()
        row = LogPart(work=work, number=self._number)
        # Latin-1 takes any byte: what is sealed is text, and the file need not be UTF-8 in the middle of a part.
        row.sealed = seal(part.decode("latin-1"), place_of(row, "sealed"))
        row.save()
        self._number += 1

    def _look_at(self, head: bytes, whole: bool) -> None:
        try:
            next(read(io.BytesIO(head)), None)
        except NoLog as fault:
            if whole or head.strip():
                self._refuse(str(fault))

    def _tell(self) -> LogImport:
        self._told = time.monotonic()
        work = self.work
        if work is None:
            raise NoLog(ENDED)
        received = LogImport.objects.filter(pk=work.pk, state=ImportState.RECEIVING)
        if not received.update(seen_at=Now(), size=self._size):
            self._refuse(ENDED)
        return work

    def _refuse(self, sentence: str) -> NoReturn:
        self.drop()
        raise NoLog(sentence)


def receive(
    *, deployment: Deployment, file: IO[bytes], name: str, since: datetime, until: datetime, zones: Sequence[Zone],
    actor: User,
) -> LogImport:  # fmt: skip
    """Take in a file that is there already, whole. Raises what `Receiver` does."""
    receiver = Receiver(deployment=deployment, name=name, actor=actor)
    try:
        while chunk := file.read(PART):
            receiver.write(chunk)
        return receiver.queue(since=since, until=until, zones=zones)
    finally:
        receiver.drop()
