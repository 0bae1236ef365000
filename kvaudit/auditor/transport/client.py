"""Talks to one base URL: one connection pool, one allow-list of paths, one set of headers.

Built on httpcore, the wire layer of httpx: a pool per node keeps a fleet's requests from queueing
behind each other, and leaving the upper layer away saves more than half of the gate's start-up
(docs/decisions/0002-the-way-out.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager

import httpcore

from kvaudit.auditor.transport.addresses import (
    BaseURL,
    Resolve,
    parse_base_url,
    system_resolve,
)
from kvaudit.auditor.transport.answers import Response, StreamedResponse, now
from kvaudit.auditor.transport.body import Decoder
from kvaudit.auditor.transport.errors import DeadlineExceeded, PathNotAllowed
from kvaudit.auditor.transport.headers import OPEN_HEADERS, check_headers, printable, secrets_of
from kvaudit.auditor.transport.limits import MAX_BODY, USUAL, Limits
from kvaudit.auditor.transport.pool import USER_AGENT, TLSFiles, open_pool, timeouts
from kvaudit.auditor.transport.redaction import Redactor
from kvaudit.auditor.transport.redirects import refuse_redirect
from kvaudit.auditor.transport.sentences import sentences

_KEPT_HEADERS = ("content-type", "server", "retry-after", "x-request-id")
_CACHE, _NO_CACHE = "cache", "cache-control"
"""Headers in which a gateway says whether an answer came out of a cache have many names with this word in them."""


class Client:
    """Talks to one base URL, on allow-listed paths only. Close it with `aclose` (or ``async with``).

    ``allow`` holds (method, path) pairs; a path may contain a query and must match exactly.
    ``headers`` are sent with every request; their values are secrets. ``redact`` names further values
    that must never come back out of a body. ``tls_folder`` is the only folder that the TLS files may be named in
    (`kvaudit.auditor.transport.tls.context`); None takes any path.
    Raises `BadURL`, `AddressDenied` or `BadHeader` at once; TLS files are read with the first request.
    """

    def __init__(
        self,
        base_url: str,
        *,
        allow: Collection[tuple[str, str]],
        headers: Iterable[tuple[str, str]] = (),
        ca_file: str = "",
        client_cert: str = "",
        client_key: str = "",
        tls_folder: str | None = None,
        redact: Iterable[str] = (),
        limits: Limits = USUAL,
        resolve: Resolve = system_resolve,
        max_connections: int = 100,
    ) -> None:
        self.base: BaseURL = parse_base_url(base_url)
        self.allow = frozenset(allow)
        self.limits = limits
        self._headers = tuple(headers)
        check_headers(self._headers)
        self.redactor = Redactor([*secrets_of(self._headers), *redact])
        self._tls_files = TLSFiles(ca_file, client_cert, client_key, tls_folder)
        self._resolve = resolve
        self._max_connections = max_connections
        self._pool: httpcore.AsyncConnectionPool | None = None
        self._opening = asyncio.Lock()

    @property
    def sends_credentials(self) -> bool:
        return any(name.lower() not in OPEN_HEADERS for name, _ in self._headers)

    @property
    def sends_certificate(self) -> bool:
        return bool(self._tls_files.client_cert)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    async def get(self, path: str, *, limits: Limits | None = None) -> Response:
        """The whole answer to a GET, any status except redirects."""
        return await self.request("GET", path, limits=limits)

    async def request(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        content_type: str = "application/json",
        headers: Iterable[tuple[str, str]] = (),
        limits: Limits | None = None,
    ) -> Response:
        """The whole answer, redacted. Raises a `TransportError` when there is none."""
        sent = self.stream(
            method, path, content=content, content_type=content_type, headers=headers, limits=limits
        )
        async with sent as answer:
            return await answer.read()

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        content_type: str = "application/json",
        headers: Iterable[tuple[str, str]] = (),
        limits: Limits | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        """The answer as soon as its headers are there; read it with `StreamedResponse.events` or
        `read`. Leaving the block early closes the connection, which cancels the request upstream.
        """
        limits = limits or self.limits
        request = self._build(method, path, content, content_type, tuple(headers), limits)
        where = f"{method} {self.base}{path}"
        began = now()
        try:
            async with asyncio.timeout(limits.total):
                with sentences(where, limits, self.redactor, certified=self.sends_certificate):
                    response = await (self._pool or await self._open_pool()).handle_async_request(request)
                    try:
                        yield self._answer(response, method, path, where, began, limits)
                    finally:
                        await response.aclose()
        except TimeoutError:
            raise DeadlineExceeded(
                f"{where} did not finish its answer within {limits.total:g} s: the server drips or hangs."
            ) from None

    def _build(
        self,
        method: str,
        path: str,
        content: bytes | None,
        content_type: str,
        headers: tuple[tuple[str, str], ...],
        limits: Limits,
    ) -> httpcore.Request:
        if (method, path) not in self.allow:
            raise PathNotAllowed(
                f"{method} {path} is not on the allow-list for {self.base} and was not sent: "
                "some engines act on paths that look harmless."
            )
        check_headers(headers)
        fields = [
            ("Host", self.base.host_header),
            ("Accept", "*/*"),
            ("Accept-Encoding", "gzip"),
            ("User-Agent", USER_AGENT),
        ]
        if content is not None:
            fields += [("Content-Type", content_type), ("Content-Length", str(len(content)))]
        own = {name.lower() for name, _ in headers}
        fields += [(name, value) for name, value in self._headers if name.lower() not in own]
        fields += headers
        target = self.base.prefix + path or "/"  # a generic pool is asked at its own address: path ""
        url = httpcore.URL(
            scheme=self.base.scheme.encode(),
            host=self.base.host.encode(),
            port=self.base.port,
            target=target.encode("ascii", "strict"),
        )
        return httpcore.Request(
            method,
            url,
            headers=[(name.encode("ascii"), value.encode("latin-1")) for name, value in fields],
            content=content or b"",
            extensions={"timeout": timeouts(limits)},
        )

    async def _open_pool(self) -> httpcore.AsyncConnectionPool:
        """Once, under the deadline of the first request."""
        async with self._opening:
            if self._pool is None:
                self._pool = await open_pool(self.base, self._tls_files, self._resolve, self._max_connections)
            return self._pool

    def _answer(
        self, response: httpcore.Response, method: str, path: str, where: str, began: float, limits: Limits
    ) -> StreamedResponse:
        headers = {
            name.lower().decode("latin-1"): value.decode("latin-1") for name, value in response.headers
        }
        refuse_redirect(response.status, headers.get("location", ""), where, self.redactor)
        decoder = Decoder(headers.get("content-encoding", ""), limits.body, where)
        decoder.check_announced(headers.get("content-length", ""))
        kept = {
            name: printable(self.redactor.text(value))
            for name, value in headers.items()
            if name in _KEPT_HEADERS or (_CACHE in name and name != _NO_CACHE)
        }
        return StreamedResponse(
            response,
            decoder,
            self.redactor,
            Response(
                method,
                f"{self.base}{path}",
                response.status,
                content_type=kept.get("content-type", ""),
                headers=kept,
                first_byte=now() - began,
            ),
            began,
            self.redactor.text("\n".join(headers.values())),
        )


__all__ = ["MAX_BODY", "Client", "Limits", "Response", "StreamedResponse", "check_headers", "secrets_of"]
