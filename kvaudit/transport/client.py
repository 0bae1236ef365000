"""One client per node: one connection pool, one allow-list, one set of headers.

Built on httpcore, the wire layer of httpx: a pool per node keeps a fleet's requests from queueing
behind each other, and leaving the upper layer away saves more than half of the gate's start-up
(docs/decisions/0002-the-way-out.md).
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import httpcore

from kvaudit.transport import tls
from kvaudit.transport.addresses import BaseURL, PinnedBackend, Resolve, parse_base_url, system_resolve
from kvaudit.transport.body import Decoder
from kvaudit.transport.errors import (
    BadHeader,
    BodyTooLarge,
    ConnectionDropped,
    ConnectTimedOut,
    DeadlineExceeded,
    NotHTTP,
    PathNotAllowed,
    Redirected,
    SilentServer,
    TLSFailed,
    TransportError,
    Unreachable,
)
from kvaudit.transport.redaction import Redactor
from kvaudit.transport.sse import Event, EventParser
from kvaudit.verdict import Evidence

MAX_BODY = 8 * 2**20
USER_AGENT = "kvaudit"
IDLE_SECONDS = 4.0
"""Unused connections are closed after this; uvicorn closes its side after 5 s."""

_KEPT_HEADERS = ("content-type", "server", "retry-after", "x-request-id")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OPEN_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent", "host", "x-request-id"})


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and bytes of one request. ``total`` covers everything from the look-up to the last byte."""

    total: float = 6.0
    connect: float = 3.0
    read: float = 5.0
    body: int = MAX_BODY


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer, redacted. ``first_byte`` and ``seconds`` are times since sending began."""

    method: str
    url: str
    status: int
    body: bytes = field(default=b"", repr=False)
    content_type: str = ""
    exposed: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    first_byte: float = 0.0
    seconds: float = 0.0

    def evidence(self, kind: str = "response") -> Evidence:
        """The redacted body, named by its SHA-256."""
        source = f"{self.method} {self.url}"
        return Evidence(kind, sha256(self.body).hexdigest(), source, self.body, self.content_type)


class Client:
    """Talks to one base URL, on allow-listed paths only. Close it with `aclose` (or ``async with``).

    ``allow`` holds (method, path) pairs; a path may contain a query and must match exactly.
    ``headers`` are sent with every request; their values are secrets. ``redact`` names further values
    that must never come back out of a body.
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
        redact: Iterable[str] = (),
        limits: Limits = Limits(),
        resolve: Resolve = system_resolve,
        max_connections: int = 100,
    ) -> None:
        self.base: BaseURL = parse_base_url(base_url)
        self.allow = frozenset(allow)
        self.limits = limits
        self._headers = tuple(headers)
        check_headers(self._headers)
        self.redactor = Redactor([*secrets_of(self._headers), *redact])
        self._tls_files = (ca_file, client_cert, client_key)
        self._resolve = resolve
        self._max_connections = max_connections
        self._pool: httpcore.AsyncConnectionPool | None = None

    @property
    def sends_credentials(self) -> bool:
        return any(name.lower() not in _OPEN_HEADERS for name, _ in self._headers)

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
        began = _now()
        try:
            async with asyncio.timeout(limits.total):
                with _sentences(where, limits, self.redactor):
                    response = await self._open_pool().handle_async_request(request)
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
        timeout = {
            "connect": limits.connect,
            "read": limits.read,
            "write": limits.read,
            "pool": limits.total,
        }
        return httpcore.Request(
            method,
            url,
            headers=[(name.encode("ascii"), value.encode("latin-1")) for name, value in fields],
            content=content or b"",
            extensions={"timeout": timeout},
        )

    def _open_pool(self) -> httpcore.AsyncConnectionPool:
        if self._pool is None:
            context: ssl.SSLContext | None = None
            if self.base.scheme == "https":
                context = tls.context(*self._tls_files)
            self._pool = httpcore.AsyncConnectionPool(
                ssl_context=context,
                max_connections=self._max_connections,
                max_keepalive_connections=self._max_connections,
                keepalive_expiry=IDLE_SECONDS,
                network_backend=PinnedBackend(self._resolve),
            )
        return self._pool

    def _answer(
        self, response: httpcore.Response, method: str, path: str, where: str, began: float, limits: Limits
    ) -> StreamedResponse:
        headers = {
            name.lower().decode("latin-1"): value.decode("latin-1") for name, value in response.headers
        }
        if 300 <= response.status < 400 and response.status != 304:
            wanted = printable(self.redactor.text(headers.get("location", "")).partition("?")[0])
            raise Redirected(
                f"{where} answered {response.status} and wanted to send us to {wanted or 'nowhere named'}: "
                "redirects are never followed. Give the address of the engine itself."
            )
        decoder = Decoder(headers.get("content-encoding", ""), limits.body, where)
        decoder.check_announced(headers.get("content-length", ""))
        kept = {
            name: printable(self.redactor.text(headers[name])) for name in _KEPT_HEADERS if name in headers
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
                first_byte=_now() - began,
            ),
            began,
        )


class StreamedResponse:
    """An answer whose body is still arriving. Consume it once: `read` or `events`."""

    def __init__(
        self,
        response: httpcore.Response,
        decoder: Decoder,
        redactor: Redactor,
        head: Response,
        began: float,
    ) -> None:
        self._response = response
        self._decoder = decoder
        self._redactor = redactor
        self._began = began
        self.head = head
        self.status = head.status
        self.content_type = head.content_type
        self.first_event: float | None = None
        """Seconds until the first event, None before it."""
        self.first_token: float | None = None
        """Seconds until the first event with generated text in it (TTFT), None before it."""
        self.done = False
        """Whether ``[DONE]`` arrived; a stream that ends without it was truncated."""
        self.error = ""
        """The first error that an event reported, inside a 200."""

    @property
    def is_event_stream(self) -> bool:
        return self.content_type.lower().startswith("text/event-stream")

    async def _pieces(self) -> AsyncIterator[bytes]:
        async for chunk in self._response.aiter_stream():
            for piece in self._decoder.feed(chunk):
                yield piece
        self._decoder.finish()

    async def read(self) -> Response:
        """The whole body, redacted."""
        parts = [piece async for piece in self._pieces()]
        body, exposed = self._redactor.body(b"".join(parts))
        head = self.head
        return Response(
            head.method,
            head.url,
            head.status,
            body,
            head.content_type,
            exposed,
            head.headers,
            head.first_byte,
            _now() - self._began,
        )

    async def events(self) -> AsyncIterator[Event]:
        """The events of the stream, redacted, ``[DONE]`` included. Ends with the body or ``[DONE]``;
        `done` and `error` say how it went. The body cap applies to the whole stream."""
        parser = EventParser()
        async for piece in self._pieces():
            for raw in parser.feed(piece, _now() - self._began):
                body, _ = self._redactor.body(raw.data.encode())
                event = Event(body.decode(errors="replace"), raw.event, raw.id, raw.seconds)
                self._note(event)
                yield event
                if event.done:
                    return

    def _note(self, event: Event) -> None:
        if event.done:
            self.done = True
            return
        if self.first_event is None:
            self.first_event = event.seconds
        if not self.error:
            self.error = event.error
        if self.first_token is None and event.text:
            self.first_token = event.seconds


def _now() -> float:
    """The running loop's clock: monotonic, and simulated where the loop simulates time."""
    return asyncio.get_running_loop().time()


def check_headers(headers: Iterable[tuple[str, str]]) -> None:
    """`BadHeader` for names and values that cannot be sent; the value is never repeated."""
    for name, value in headers:
        if not _TOKEN.fullmatch(name):
            raise BadHeader(f"The header name {name[:60]!r} is not valid.")
        if any((ord(char) < 32 and char != "\t") or ord(char) == 127 for char in value):
            raise BadHeader(
                f"The value of header {name} contains a line break or control character; "
                "a key file often ends in a newline: remove it."
            )
        if not value.isascii():
            raise BadHeader(f"The value of header {name} contains characters outside ASCII.")
        if name.lower() in ("host", "content-length", "transfer-encoding", "connection"):
            raise BadHeader(f"The header {name} is set by kvaudit itself and cannot be given.")


def printable(text: str) -> str:
    """At most 200 characters of a stranger's text, without control characters for the terminal."""
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in text[:200])


def secrets_of(headers: Iterable[tuple[str, str]]) -> Iterable[str]:
    """The secret parts of these headers: each whole value, and its last word (``Bearer <key>``)."""
    for name, value in headers:
        if name.lower() not in _OPEN_HEADERS:
            yield value.strip()
            yield value.strip().rpartition(" ")[2]


_WIRE_ERRORS = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, ssl.SSLError)


class _sentences:
    """Turns what httpcore, ssl and h11 raise into one `TransportError` with a sentence."""

    def __init__(self, where: str, limits: Limits, redactor: Redactor) -> None:
        self._where, self._limits, self._redactor = where, limits, redactor

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, TransportError) or error is None:
            return
        translated = self._translate(error)
        if translated is not None:
            raise translated from None

    def _translate(self, error: BaseException) -> TransportError | None:
        where, limits = self._where, self._limits
        if not isinstance(error, _WIRE_ERRORS):
            return None
        security = _find(error, ssl.SSLError)
        if security is not None:
            return TLSFailed(_tls_sentence(where, security))
        match error:
            case httpcore.ConnectTimeout():
                return ConnectTimedOut(
                    f"{where}: the TLS handshake did not finish within {limits.connect:g} s."
                )
            case httpcore.ReadTimeout() | httpcore.WriteTimeout():
                return SilentServer(
                    f"{where} sent nothing for {limits.read:g} s: the server hangs, "
                    "or something in between drops packets."
                )
            case httpcore.PoolTimeout():
                return DeadlineExceeded(f"{where} waited {limits.total:g} s for a free connection.")
            case httpcore.RemoteProtocolError():
                text = self._redactor.text(str(error))[:160]
                if "disconnected" in text or "incomplete" in text or "closed connection" in text:
                    return ConnectionDropped(
                        f"{where}: the server closed the connection before its answer was complete."
                    )
                return NotHTTP(
                    f"{where} did not answer in HTTP ({text}): another service listens on that port, "
                    "or it expects https."
                )
            case httpcore.LocalProtocolError():
                return NotHTTP(f"{where} could not be sent ({self._redactor.text(str(error))[:160]}).")
            case httpcore.ConnectError():
                if self._where.partition(" ")[2].startswith("https"):
                    return TLSFailed(
                        f"{where}: the server closed the connection during the TLS handshake; "
                        "it may want a client certificate, or speak plain http."
                    )
                return Unreachable(f"{where} cannot be reached.")
            case httpcore.NetworkError():
                return ConnectionDropped(f"{where}: the connection was reset before the answer was complete.")
        return None


def _find(error: BaseException | None, kind: type[ssl.SSLError]) -> ssl.SSLError | None:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, kind):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def _tls_sentence(where: str, error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"{where}: the certificate is not trusted ({error.verify_message}); give the CA with --ca-file, "
            "or the name that stands in the certificate."
        )
    reason = (error.reason or str(error) or "no details").upper().replace(" ", "_")
    if any(sign in reason for sign in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")):
        return f"{where}: no TLS on that port ({reason}); the URL probably begins with http://."
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason or "BAD_CERTIFICATE" in reason:
        return (
            f"{where}: the server wants a client certificate ({reason}); give --client-cert and --client-key."
        )
    return f"{where}: TLS failed ({reason})."


__all__ = [
    "MAX_BODY",
    "BodyTooLarge",
    "Client",
    "Limits",
    "Response",
    "StreamedResponse",
    "check_headers",
    "secrets_of",
]
