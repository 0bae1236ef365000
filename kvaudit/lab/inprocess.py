"""The lab without sockets: the same HTTP applications and the auditor's own client, joined in memory.

    async def main():
        async with in_process(LabConfig(), ["stale_pages"]) as lab:
            client = lab.client(lab.entry, allow=[("POST", "/v1/completions")], key=lab.keys[0])
            ...
    kvaudit.lab.clock.run_virtual(main())

On the virtual loop a prefill of 50 ms takes no time to wait for, and the client's timestamps say 50 ms.
Streaming arrives frame by frame; closing a stream early reaches the engine as a disconnect.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpcore
from starlette.types import ASGIApp, Message

from kvaudit.auditor.transport import Client, Limits
from kvaudit.auditor.transport.pool import in_memory
from kvaudit.lab.config import LabConfig
from kvaudit.lab.deployment import Deployment

_LIMITS = Limits()
FIRST_PORT = 59_001
"""The router's port in in-process addresses (http://127.0.0.1:59001); nodes count on from there. Nothing
listens there: the addresses are only names."""


class InProcess:
    """A deployment and the ways to it."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self._applications = dict(enumerate((app for _, app in deployment.applications()), FIRST_PORT))
        for number, api in enumerate(deployment.apis, 1):
            api.port = FIRST_PORT + number
        urls = [f"http://127.0.0.1:{port}" for port in self._applications]
        self.entry, self.node_urls = urls[0], urls[1:]
        self.keys = [tenant.key for tenant in deployment.config.tenants]

    def described(self) -> dict[str, Any]:
        return self.deployment.described(self.entry, self.node_urls)

    def pool(self) -> MemoryPool:
        """Answers `httpcore` requests to any of this lab's addresses."""
        return MemoryPool(self._applications)

    def client(
        self, url: str, *, allow: Collection[tuple[str, str]], key: str = "", limits: Limits = _LIMITS
    ) -> Client:
        """The auditor's client for ``url`` with a tenant's or node's ``key``; a `kvaudit.auditor.prober.Wire`."""
        headers: Iterable[tuple[str, str]] = [("Authorization", f"Bearer {key}")] if key else []
        return _LabClient(url, allow=allow, headers=headers, limits=limits, memory=self.pool())

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Within the block every `kvaudit.auditor.transport.Client` reaches this lab and nothing else: the whole
        auditor, runner included, works in memory."""
        token = in_memory.set(lambda base: self.pool())
        try:
            yield
        finally:
            in_memory.reset(token)


@asynccontextmanager
async def in_process(config: LabConfig, faults: Sequence[str] = ()) -> AsyncIterator[InProcess]:
    """A lab deployment for the time of the block."""
    deployment = Deployment(config, faults)
    try:
        yield InProcess(deployment)
    finally:
        await deployment.stop()


class _LabClient(Client):
    def __init__(self, url: str, *, memory: MemoryPool, **options: Any) -> None:
        super().__init__(url, **options)
        self._memory = memory

    async def _open_pool(self) -> Any:
        return self._memory


class MemoryPool:
    """Stands in for `httpcore.AsyncConnectionPool`: hands a request to an ASGI application and
    gives its answer back as it comes."""

    def __init__(self, applications: dict[int, ASGIApp]) -> None:
        self._applications = applications

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        application = self._applications.get(request.url.port or 0)
        if application is None:
            raise httpcore.ConnectError(f"no lab application listens on port {request.url.port}")
        exchange = _Exchange(application, request, await _content(request))
        try:
            return await exchange.head()
        except BaseException:
            await exchange.aclose()
            raise

    async def aclose(self) -> None:
        """Nothing is kept open between requests."""


async def _content(request: httpcore.Request) -> bytes:
    return b"".join([part async for part in request.stream])  # type: ignore[union-attr]


class _Exchange:
    """One request and its answer. Also the answer's stream: leaving it early disconnects."""

    def __init__(self, application: ASGIApp, request: httpcore.Request, content: bytes) -> None:
        self._messages: asyncio.Queue[Message | BaseException] = asyncio.Queue(maxsize=64)
        self._left = asyncio.Event()
        self._content: bytes | None = content
        self._patience: float | None = request.extensions.get("timeout", {}).get("read")
        path, _, query = request.url.target.partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method.decode(),
            "scheme": "http",
            "path": path.decode(),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", request.url.port),
        }
        self._task = asyncio.ensure_future(self._run(application, scope))

    async def _run(self, application: ASGIApp, scope: dict[str, Any]) -> None:
        try:
            await application(scope, self._receive, self._send)
            await self._messages.put({"type": "end"})
        except Exception as error:  # noqa: BLE001  the application's own bug: the client sees a dropped connection
            await self._messages.put(error)

    async def _receive(self) -> Message:
        if self._content is not None:
            body, self._content = self._content, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self._messages.put(message)

    async def _next(self) -> Message:
        try:
            async with asyncio.timeout(self._patience):
                message = await self._messages.get()
        except TimeoutError:
            raise httpcore.ReadTimeout("the lab is silent") from None
        if isinstance(message, BaseException):
            raise httpcore.RemoteProtocolError(f"the lab dropped the connection: {message!r}")
        return message

    async def head(self) -> httpcore.Response:
        message = await self._next()
        if message["type"] != "http.response.start":
            raise httpcore.RemoteProtocolError("the lab answered nothing")
        return httpcore.Response(message["status"], headers=list(message["headers"]), content=self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._next()
            if message["type"] == "end":
                raise httpcore.RemoteProtocolError("the lab's answer ended too early")
            if message.get("body"):
                yield message["body"]
            more = message.get("more_body", False)

    async def aclose(self) -> None:
        self._left.set()
        while not self._task.done():
            while not self._messages.empty():
                self._messages.get_nowait()
            await asyncio.sleep(0)
            if not self._task.done():
                await asyncio.wait({self._task}, timeout=0.01)
                if self._left_long():
                    self._task.cancel()

    _turns = 0

    def _left_long(self) -> bool:
        self._turns += 1
        return self._turns > 100
