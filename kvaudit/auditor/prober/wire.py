"""Defines what the prober needs of an HTTP client: `kvaudit.auditor.transport.Client`, or the lab in memory."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from kvaudit.auditor.transport import Limits, Response


class Wire(Protocol):
    """A way to one base URL. ``stream`` yields an answer with ``status``, ``is_event_stream``,
    ``events()``, ``read()`` and ``done``, as `kvaudit.auditor.transport.StreamedResponse` has them."""

    async def request(
        self, method: str, path: str, *, content: bytes | None = None, limits: Limits | None = None
    ) -> Response: ...

    def stream(
        self, method: str, path: str, *, content: bytes | None = None, limits: Limits | None = None
    ) -> AbstractAsyncContextManager[Any]: ...

    async def aclose(self) -> None: ...
