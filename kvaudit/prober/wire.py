"""What the prober needs of a client and of time: `kvaudit.transport.Client`, or the lab in process."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from kvaudit.transport import Limits, Response


class Wire(Protocol):
    """A way to one base URL. ``stream`` yields an answer with ``status``, ``is_event_stream``,
    ``events()``, ``read()`` and ``done``, as `kvaudit.transport.StreamedResponse` has them."""

    async def request(
        self, method: str, path: str, *, content: bytes | None = None, limits: Limits | None = None
    ) -> Response: ...

    def stream(
        self, method: str, path: str, *, content: bytes | None = None, limits: Limits | None = None
    ) -> AbstractAsyncContextManager[Any]: ...

    async def aclose(self) -> None: ...


class Clock(Protocol):
    """Seconds on the target's clock."""

    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class WallClock:
    """Real time."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
