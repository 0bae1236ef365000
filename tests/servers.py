"""Loopback HTTP servers for tests: recorded answers, and every way a server can misbehave.

    async with serving(replay({"/version": recorded("vllm-0.32.0/get_version.http")})) as server:
        ... server.url, server.requests

or, where the code under test runs in another process or without a loop of its own::

    with background(hanging()) as server: ...

A behaviour is ``async (Request, StreamWriter) -> None``; it writes raw bytes, nothing is tidied up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import ssl
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE

PAYLOADS = Path(__file__).parent / "payloads"


@dataclass(frozen=True)
class Request:
    method: str
    path: str  # with the query
    headers: Mapping[str, str]  # lower-case names
    body: bytes = b""


Behaviour = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """A running server: ``url`` to audit, ``requests`` it has received, connections it accepted."""

    url: str
    port: int
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    def asked(self, path: str) -> int:
        return sum(request.path == path for request in self.requests)


@dataclass(frozen=True)
class Recorded:
    """One answer to replay."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


def payload(name: str) -> bytes:
    """A file under tests/payloads, for instance ``sglang/server_info-prefill-0.5.19.json``."""
    return (PAYLOADS / name).read_bytes()


def recorded(name: str, status: int = 200) -> Recorded:
    """A recorded answer: a ``.http`` file (``>`` request, ``<`` status and headers, body) or plain JSON."""
    raw = payload(name)
    if not name.endswith(".http"):
        return Recorded(status, raw)
    lines = raw.split(b"\n")
    starts = [index for index, line in enumerate(lines) if line.startswith(b"< ")]
    first = re.match(rb"< HTTP (\d{3})", lines[starts[0]])
    assert first, f"{name} has no status line"
    content_type = "application/octet-stream"
    for index in starts:
        label, _, value = lines[index][2:].decode().partition(": ")
        if label.lower() == "content-type":
            content_type = value
    body = b"\n".join(lines[starts[-1] + 2 :])
    return Recorded(int(first[1]), body, content_type)


def answer(document: Any, status: int = 200) -> Recorded:
    """A JSON document as an answer."""
    return Recorded(status, json.dumps(document).encode())


# Behaviours


def replay(
    routes: Mapping[str, Recorded], *, key: str = "", open_paths: frozenset[str] = frozenset()
) -> Behaviour:
    """Answer GET and POST by path (with or without its query); others get 404. With ``key`` a
    request without that bearer token gets 401, except on ``open_paths``."""

    async def behave(request: Request, writer: asyncio.StreamWriter) -> None:
        plain = request.path.partition("?")[0]
        found = routes.get(request.path) or routes.get(plain)
        if key and plain not in open_paths and request.headers.get("authorization") != f"Bearer {key}":
            found = Recorded(401, b'{"error":"Unauthorized"}')
        if found is None:
            found = Recorded(404, b'{"detail":"Not Found"}')
        _write(writer, found)
        await writer.drain()

    return behave


def slow(seconds: float, then: Behaviour) -> Behaviour:
    """Wait before answering; for measurements, not for unit tests."""

    async def behave(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        await then(request, writer)

    return behave


def sglang_node(info: bytes | Mapping[str, Any], *, key: str = "", **more: Recorded) -> Behaviour:
    """An SGLang node that answers ``/server_info`` with this document, and the model card."""
    document = json.loads(info) if isinstance(info, bytes) else dict(info)
    card = {
        "id": document.get("served_model_name") or document.get("model_path"),
        "object": "model",
        "owned_by": "sglang",
        "root": document.get("model_path"),
        "parent": None,
        "max_model_len": document.get("context_length") or 131072,
    }
    routes = {
        "/server_info": answer(document),
        "/v1/models": answer({"object": "list", "data": [card]}),
        **{"/" + name.replace("__", "/"): reply for name, reply in more.items()},
    }
    return replay(routes, key=key)


def vllm_node(*, key: str = "", **changed: Recorded) -> Behaviour:
    """The recorded vLLM 0.32.0: open are the paths that a real one leaves open."""
    routes = {
        "/version": recorded("vllm-0.32.0/get_version.http"),
        "/v1/models": recorded("vllm-0.32.0/get_v1_models.http"),
        "/metrics": recorded("vllm-0.32.0/get_metrics.http"),
        "/health": recorded("vllm-0.32.0/get_health.http"),
        "/openapi.json": recorded("vllm-0.32.0/get_openapi_json.http"),
        **{"/" + name.replace("__", "/"): reply for name, reply in changed.items()},
    }
    return replay(
        routes,
        key=key,
        open_paths=frozenset({"/version", "/metrics", "/health", "/openapi.json", "/load", "/tokenize"}),
    )


def hanging() -> Behaviour:
    """Accept and never answer."""

    async def behave(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    return behave


def dripping(every: float = 0.05) -> Behaviour:
    """A valid answer, one byte at a time: no single read ever times out."""

    async def behave(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(every)

    return behave


def endless() -> Behaviour:
    """A body without end, as fast as it is taken."""

    async def behave(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
        while True:
            writer.write(b'"spam",' * 8192)
            await writer.drain()

    return behave


def gzip_bomb(megabytes: int = 512) -> Behaviour:
    """A small gzip body that unpacks to ``megabytes``."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    packed = b"".join(packer.compress(b" " * 2**20) for _ in range(megabytes)) + packer.flush()

    async def behave(request: Request, writer: asyncio.StreamWriter) -> None:
        _write(writer, Recorded(body=packed, headers=(("Content-Encoding", "gzip"),)))
        await writer.drain()

    return behave


def redirecting(location: str, status: int = 302) -> Behaviour:
    async def behave(request: Request, writer: asyncio.StreamWriter) -> None:
        _write(writer, Recorded(status, b"", headers=(("Location", location),)))
        await writer.drain()

    return behave


def raw(data: bytes) -> Behaviour:
    """Exactly these bytes, then the end: garbage, half answers, wrong lengths."""

    async def behave(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return behave


def html(status: int = 200) -> Behaviour:
    page = b"<!DOCTYPE html><html><head><title>Login</title></head><body>Please log in</body></html>"

    async def behave(request: Request, writer: asyncio.StreamWriter) -> None:
        _write(writer, Recorded(status, page, "text/html; charset=utf-8"))
        await writer.drain()

    return behave


def event_stream(*chunks: bytes, close: bool = True) -> Behaviour:
    """A chunked 200 event stream, one HTTP chunk per argument; ``close=False`` breaks off without
    the last chunk."""

    async def behave(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for chunk in chunks:
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            await writer.drain()
        if close:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        else:
            writer.close()

    return behave


def _write(writer: asyncio.StreamWriter, reply: Recorded) -> None:
    head = f"HTTP/1.1 {reply.status} Whatever\r\nContent-Length: {len(reply.body)}\r\n"
    if reply.content_type:
        head += f"Content-Type: {reply.content_type}\r\n"
    for name, value in reply.headers:
        head += f"{name}: {value}\r\n"
    writer.write(head.encode("latin-1") + b"\r\n" + reply.body)


# Running them


@contextlib.asynccontextmanager
async def serving(
    behaviour: Behaviour, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Server]:
    """Serve inside the running loop until the block ends; all connections are closed then."""
    server = Server("", 0)
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            while (request := await _read_request(reader)) is not None and not writer.is_closing():
                server.requests.append(request)
                await behaviour(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or the test is over
        finally:
            tasks.discard(task)
            writer.close()

    listener = await asyncio.start_server(connected, host, 0, ssl=tls, backlog=1024)
    server.port = listener.sockets[0].getsockname()[1]
    server.url = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{server.port}"
    try:
        yield server
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *rest = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in rest if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body)


@contextlib.contextmanager
def background(
    behaviour: Behaviour, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> Iterator[Server]:
    """Serve from a thread of its own until the block ends."""
    ready = threading.Event()
    box: dict[str, Any] = {}

    async def main() -> None:
        box["loop"], box["stop"] = asyncio.get_running_loop(), asyncio.Event()
        async with serving(behaviour, tls=tls, host=host) as server:
            box["server"] = server
            ready.set()
            await box["stop"].wait()

    def run() -> None:
        try:
            asyncio.run(main())
        finally:
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait(PATIENCE)
    try:
        yield box["server"]
    finally:
        box["loop"].call_soon_threadsafe(box["stop"].set)
        thread.join(PATIENCE)


_closed: list[socket.socket] = []


def closed_port() -> int:
    """A port of 127.0.0.1 on which nothing listens: one socket holds it for good, so that nobody else can."""
    if not _closed:
        held = socket.socket()
        held.bind(("127.0.0.1", 0))
        _closed.append(held)
    return int(_closed[0].getsockname()[1])
