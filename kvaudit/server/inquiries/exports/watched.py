"""Streams exports that are watched: counts what is sent, hears of a cancel, and leaves what a whole file comes
to."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Generator, Iterable, Iterator
from typing import Any, TypeVar

from django.db.models.functions import Now

from kvaudit.server.accounts.models import User
from kvaudit.server.inquiries.exports.models import Export, ExportState
from kvaudit.server.inquiries.saved_views.services import LONGEST_QUERY, ViewProblem, normal

EVERY = 1.0
"""Seconds between two signs of life."""

MOST_KEPT = 50
"""Exports of one person that are remembered."""

Row = TypeVar("Row")


class Cancelled(Exception):
    """Somebody asked to stop; the message is the last line of what was sent."""


def begin(*, user: User, kind: str, query: str) -> Export:
    """An export that waits for its download. Raises `ViewProblem` where the filters are too long to keep."""
    kept = normal(query)
    if len(kept) > LONGEST_QUERY:
        raise ViewProblem(
            f"These filters are longer than an export remembers ({LONGEST_QUERY:,} characters)."
        )
    export = Export.objects.create(user=user, kind=kind, query=kept)
    old = Export.objects.filter(user=user).order_by("-pk").values_list("pk", flat=True)[MOST_KEPT:]
    Export.objects.filter(pk__in=list(old)).delete()
    return export


def claim(export: Export) -> bool:
    """Begin to send it; False where that was done before: what a file comes to is said of one file."""
    ready = Export.objects.filter(pk=export.pk, state=ExportState.READY)
    return bool(ready.update(state=ExportState.RUNNING, seen_at=Now()))


def cancel(export: Export) -> bool:
    """Stop it within seconds; False where it had ended."""
    if Export.objects.filter(pk=export.pk, state=ExportState.READY).update(
        state=ExportState.CANCELLED, cancel_requested_at=Now(), ended_at=Now()
    ):
        return True
    running = Export.objects.filter(pk=export.pk, state=ExportState.RUNNING)
    return bool(running.update(cancel_requested_at=Now()))


class Meter:
    """Counts the rows that go in and the bytes that come out of one export's stream."""

    def __init__(self, export: Export) -> None:
        self._export, self._rows, self._size = export, 0, 0
        self._digest, self._told = hashlib.sha256(), time.monotonic()

    def rows(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The same rows. Raises `Cancelled` within `EVERY` seconds of a cancel."""
        try:
            for row in rows:
                yield row
                self._rows += 1
                if time.monotonic() - self._told >= EVERY:
                    self._tell()
        finally:
            if isinstance(rows, Generator):
                rows.close()  # ends its query

    def parts(self, parts: Iterable[bytes | str]) -> Iterator[bytes]:
        """The same parts as bytes. However the stream ends, its export says so."""
        state = ExportState.FAILED
        try:
            for part in parts:
                sent = part.encode() if isinstance(part, str) else part
                self._digest.update(sent)
                self._size += len(sent)
                yield sent
            state = ExportState.FINISHED
        except Cancelled:
            state = ExportState.CANCELLED
            raise  # the transfer must not end as if it were whole
        finally:  # also when the reader has gone and the stream is closed
            whole: dict[str, Any] = (
                {"sha256": self._digest.hexdigest()} if state == ExportState.FINISHED else {}
            )
            Export.objects.filter(pk=self._export.pk).update(
                state=state, rows=self._rows, size=self._size, ended_at=Now(), **whole
            )

    def _tell(self) -> None:
        self._told = time.monotonic()
        mine = Export.objects.filter(pk=self._export.pk)
        mine.update(rows=self._rows, size=self._size, seen_at=Now())
        if mine.filter(cancel_requested_at__isnull=False).exists():
            raise Cancelled(f"export incomplete: it was cancelled here, after {self._rows:,} rows.")
