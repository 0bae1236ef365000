"""A log that goes where it is kept as it comes: files are spooled to the temporary folder otherwise, which in a
container is memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.core.files.uploadhandler import FileUploadHandler, SkipFile
from django.http import HttpRequest

from kvaudit.server.inquiries.request_logs.reader import NoLog
from kvaudit.server.inquiries.request_logs.upload import Receiver


class LogUpload(FileUploadHandler):
    """Hands the file of the field ``file`` to a `Receiver` as it comes. ``problem`` says why it was refused; the rest
    of the form is read all the same. Whoever makes one calls `drop` in the end."""

    chunk_size = 256 * 1024

    def __init__(self, request: HttpRequest, begin: Callable[[str], Receiver]) -> None:
        super().__init__(request)
        self._begin = begin
        self._receiver: Receiver | None = None
        self._whole = False
        self.problem = ""

    @property
    def received(self) -> Receiver | None:
        """What came whole."""
        return self._receiver if self._whole and not self.problem else None

    def new_file(self, field_name: str, file_name: str, *args: Any, **kwargs: Any) -> None:
        super().new_file(field_name, file_name, *args, **kwargs)
        if field_name != "file" or self._receiver is not None:
            raise SkipFile
        with self._refusals():
            self._receiver = self._begin(file_name)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        if self._receiver is not None and not self._whole:
            with self._refusals():
                self._receiver.write(raw_data)

    def file_complete(self, file_size: int) -> None:
        self._whole = True  # and nothing for request.FILES

    def upload_interrupted(self) -> None:
        if not self._whole:  # also called where the last file was skipped
            self.problem = self.problem or "The file did not come whole: send it again."

    def drop(self) -> None:
        if self._receiver is not None:
            self._receiver.drop()

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except NoLog as fault:
            self.problem = str(fault)
            raise SkipFile from fault
