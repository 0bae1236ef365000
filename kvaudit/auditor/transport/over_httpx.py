"""httpx over our own connections, for everything that is neither an audit nor the gate: webhooks, services.

httpx is a pleasant client with ways out of its own (proxies and certificates of the environment, redirects, ``.netrc``,
bodies without bound). `client` has none of them: it stands on `PinnedTransport`, which connects as
`kvaudit.auditor.transport.client.Client` does, to addresses that were checked and where the operator's list allows it.
The gate never imports this module: httpx costs more to import than the gate may take (docs/decisions/0002).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import httpcore
import httpx

from kvaudit.auditor.transport.addresses import BaseURL, Resolve, parse_base_url, system_resolve
from kvaudit.auditor.transport.body import Decoder
from kvaudit.auditor.transport.errors import DeadlineExceeded
from kvaudit.auditor.transport.limits import USUAL, Limits
from kvaudit.auditor.transport.pool import USER_AGENT, TLSFiles, open_pool, timeouts
from kvaudit.auditor.transport.redaction import Redactor
from kvaudit.auditor.transport.redirects import refuse_redirect
from kvaudit.auditor.transport.sentences import sentences

NOT_PASSED_ON = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})
"""Headers of an answer that no longer hold once its body is decoded."""


class PinnedTransport(httpx.AsyncBaseTransport):
    """Raises a `TransportError` with a sentence where no whole answer comes: refused address, deadline, size, redirect.
    ``redact`` are values that must not come back in a sentence. Bodies are read whole, within ``limits``."""

    def __init__(
        self,
        *,
        limits: Limits = USUAL,
        redact: Iterable[str] = (),
        tls_files: TLSFiles = TLSFiles(),  # noqa: B008 - frozen
        resolve: Resolve = system_resolve,
    ) -> None:
        self._limits = limits
        self._redactor = Redactor(redact)
        self._tls_files = tls_files
        self._resolve = resolve
        self._pools: dict[str, httpcore.AsyncConnectionPool] = {}
        self._opening = asyncio.Lock()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        base = parse_base_url(f"{request.url.scheme}://{request.url.netloc.decode('ascii')}")
        target: bytes = request.extensions.get("target", request.url.raw_path)
        where = f"{request.method} {base}{target.decode('ascii')}"
        limits = self._limits
        try:
            async with asyncio.timeout(limits.total):
                with sentences(where, limits, self._redactor):
                    pool = self._pools.get(base.origin) or await self._open(base)
                    answer = await pool.handle_async_request(
                        httpcore.Request(
                            request.method,
                            httpcore.URL(
                                scheme=base.scheme.encode(),
                                host=base.host.encode(),
                                port=base.port,
                                target=target,
                            ),
                            headers=request.headers.raw,
                            content=await request.aread(),
                            extensions={"timeout": timeouts(limits)},
                        )
                    )
                    try:
                        return await self._whole(answer, where)
                    finally:
                        await answer.aclose()
        except TimeoutError:
            raise DeadlineExceeded(
                f"{where} did not finish its answer within {limits.total:g} s: the server drips or hangs."
            ) from None

    async def aclose(self) -> None:
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.aclose()

    async def _open(self, base: BaseURL) -> httpcore.AsyncConnectionPool:
        async with self._opening:
            if base.origin not in self._pools:
                self._pools[base.origin] = await open_pool(base, self._tls_files, self._resolve, 100)
            return self._pools[base.origin]

    async def _whole(self, answer: httpcore.Response, where: str) -> httpx.Response:
        headers = httpx.Headers(answer.headers)
        refuse_redirect(answer.status, headers.get("location", ""), where, self._redactor)
        decoder = Decoder(headers.get("content-encoding", ""), self._limits.body, where)
        decoder.check_announced(headers.get("content-length", ""))
        body = b"".join([piece async for chunk in answer.aiter_stream() for piece in decoder.feed(chunk)])
        decoder.finish()
        kept = [(name, value) for name, value in answer.headers if name.lower() not in NOT_PASSED_ON]
        return httpx.Response(answer.status, headers=kept, content=body)


def client(transport: PinnedTransport) -> httpx.AsyncClient:
    """The only way to make an httpx client here (ruff refuses the others). Close it, with ``async with``."""
    headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "gzip"}  # what the transport decodes under a cap
    return httpx.AsyncClient(transport=transport, headers=headers, timeout=None, trust_env=False)  # noqa: S113
