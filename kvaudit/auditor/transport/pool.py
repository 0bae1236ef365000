"""Connections of one base URL: a pool that connects to addresses it has checked, and to nothing else.

Both clients stand on it, `kvaudit.auditor.transport.client` and httpx (`kvaudit.auditor.transport.over_httpx`).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpcore

from kvaudit.auditor.transport import tls
from kvaudit.auditor.transport.addresses import BaseURL, PinnedBackend, Resolve
from kvaudit.auditor.transport.aside import aside
from kvaudit.auditor.transport.limits import Limits

USER_AGENT = "kvaudit"
IDLE_SECONDS = 4.0
"""Unused connections are closed after this; uvicorn closes its side after 5 s."""

in_memory: ContextVar[Callable[[BaseURL], Any] | None] = ContextVar("in_memory", default=None)
"""A network in memory instead of sockets, for a lab on its virtual clock: base URL -> a pool with
``handle_async_request`` and ``aclose``. None, always outside the lab = the real one."""


@dataclass(frozen=True, slots=True)
class TLSFiles:
    """``folder`` is the only folder that the files may be named in (`kvaudit.auditor.transport.tls.context`); None
    takes any path."""

    ca_file: str = ""
    client_cert: str = ""
    client_key: str = ""
    folder: str | None = None


async def open_pool(
    base: BaseURL, files: TLSFiles, resolve: Resolve, max_connections: int
) -> httpcore.AsyncConnectionPool:
    """TLS files are read beside the loop, which a slow disk must not stop: call it under a deadline."""
    network = in_memory.get()
    if network is not None:
        pool: httpcore.AsyncConnectionPool = network(base)
        return pool
    context: ssl.SSLContext | None = None
    if base.scheme == "https":
        context = await aside(
            lambda: tls.context(files.ca_file, files.client_cert, files.client_key, files.folder), "tls files"
        )
    return httpcore.AsyncConnectionPool(
        ssl_context=context,
        max_connections=max_connections,
        max_keepalive_connections=max_connections,
        keepalive_expiry=IDLE_SECONDS,
        network_backend=PinnedBackend(resolve),
    )


def timeouts(limits: Limits) -> dict[str, float]:
    """For the extension of a request that httpcore calls ``timeout``, in seconds."""
    return {"connect": limits.connect, "read": limits.read, "write": limits.read, "pool": limits.total}
