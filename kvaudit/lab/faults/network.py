"""Faults of the way between: servers that fail, drip, flood, or point elsewhere."""

from __future__ import annotations

import asyncio
import zlib
from typing import ClassVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvaudit.lab.faults.base import Faults, Nature


class Flaky(Faults):
    """A server under which probes fail: 40 % of all answers are 503 or never come. Nothing can be
    learnt here, and a check that counts silence as clean would pass."""

    name = "flaky"
    nature = Nature.OPEN
    reports: ClassVar[tuple[str, ...]] = ()
    RATE = 0.4

    def wrap(self, application: ASGIApp) -> ASGIApp:
        async def flaky(scope: Scope, receive: Receive, send: Send) -> None:
            if self.random.random() >= self.RATE:
                await application(scope, receive, send)
            elif self.random.random() < 0.5:
                await _answer(send, 503, [(b"content-type", b"text/plain")], b"no healthy upstream")
            else:
                while (await receive())["type"] != "http.disconnect":  # silence until the client gives up
                    pass

        return flaky


class Dripping(Faults):
    """One byte a second: every read is in time, the whole never ends."""

    name = "dripping"
    nature = Nature.OPEN
    SECONDS = 1.0

    def wrap(self, application: ASGIApp) -> ASGIApp:
        async def dripping(scope: Scope, receive: Receive, send: Send) -> None:
            async def slowly(message: Message) -> None:
                if message["type"] == "http.response.start":
                    await send(message)
                    return
                for at in range(len(message.get("body", b""))):
                    piece = message["body"][at : at + 1]
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    await asyncio.sleep(self.SECONDS)
                await send({**message, "body": b""})

            await _while_connected(receive, application(scope, _silent(receive), slowly))

        return dripping


class Bomb(Faults):
    """A body without an end, or one that is small on the wire and endless when unpacked."""

    name = "bomb"
    nature = Nature.OPEN

    def wrap(self, application: ASGIApp) -> ASGIApp:
        async def bomb(scope: Scope, receive: Receive, send: Send) -> None:
            packed = len(scope["path"]) % 2 == 0
            headers = [(b"content-type", b"application/json")]
            if packed:
                headers.append((b"content-encoding", b"gzip"))
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await _while_connected(receive, _flood(send, packed))

        return bomb


class Redirect(Faults):
    """Every path answers with a redirect to the cloud's metadata address."""

    name = "redirect"
    nature = Nature.OPEN
    TARGET = b"http://169.254.169.254/latest/meta-data/"

    def wrap(self, application: ASGIApp) -> ASGIApp:
        async def redirect(scope: Scope, receive: Receive, send: Send) -> None:
            await _answer(send, 307, [(b"location", self.TARGET)], b"")

        return redirect


async def _answer(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _flood(send: Send, packed: bool) -> None:
    plain = b" " * 1_048_576
    squeeze = zlib.compressobj(wbits=31)
    first = b'{"version":"'
    await send(
        {
            "type": "http.response.body",
            "body": squeeze.compress(first) if packed else first,
            "more_body": True,
        }
    )
    while True:
        body = squeeze.compress(plain) + squeeze.flush(zlib.Z_SYNC_FLUSH) if packed else plain
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await asyncio.sleep(0.001)


async def _while_connected(receive: Receive, work: object) -> None:
    """Run until done or until the client is gone."""
    from kvaudit.lab.http_base import unless_gone

    await unless_gone(receive, work)  # type: ignore[arg-type]


def _silent(receive: Receive) -> Receive:
    return receive
