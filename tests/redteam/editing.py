"""Changes an application's answers on the way to the client: every JSON document of them, streamed or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Document = dict[str, Any]
Change = Callable[[Document], Document | Sequence[Document]]
"""A document to what is sent instead; of a stream also several, or none."""


class Edited:
    """``application`` with ``change`` applied to the documents of a 200, or with ``of_errors`` to those of errors.
    ``before`` and ``after`` are bytes around the frames of a stream (``after``: before its ``[DONE]``)."""

    def __init__(
        self,
        application: ASGIApp,
        change: Change = lambda document: document,
        *,
        of_errors: Change | None = None,
        headers: Mapping[str, str] | None = None,
        before: bytes = b"",
        after: bytes = b"",
    ) -> None:
        self._application, self._change, self._of_errors = application, change, of_errors
        self._headers = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        self._before, self._after = before, after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._application(scope, receive, _Sender(self, send).send)

    def head(self, start: Message) -> Message:
        return {**start, "headers": [*start["headers"], *self._headers]}

    def change_of(self, status: int) -> Change | None:
        return self._change if status < 300 else self._of_errors

    def framed(self, data: bytes) -> bytes:
        return self._before + data

    def ended(self, data: bytes) -> bytes:
        return self._after + data


class _Sender:
    """The way back of one answer."""

    def __init__(self, edited: Edited, send: Send) -> None:
        self._edited, self._send = edited, send
        self._start: Message = {}
        self._held = b""
        self._streamed = self._begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            kinds = [value for name, value in message["headers"] if name.lower() == b"content-type"]
            self._streamed = any(kind.startswith(b"text/event-stream") for kind in kinds)
            if self._streamed:
                await self._send(self._edited.head(message))
            return
        self._held += message.get("body", b"")
        more = message.get("more_body", False)
        if self._streamed:
            await self._frames(more)
        elif not more:
            await self._whole()

    async def _frames(self, more: bool) -> None:
        *frames, self._held = self._held.split(b"\n\n")
        change = self._edited.change_of(self._start["status"])
        said = b"".join(self._frame(frame, change) for frame in frames)
        if not self._begun:
            self._begun, said = True, self._edited.framed(said)
        await self._send({"type": "http.response.body", "body": said, "more_body": more})

    def _frame(self, frame: bytes, change: Change | None) -> bytes:
        if frame == b"data: [DONE]":
            return self._edited.ended(frame + b"\n\n")
        if not frame.startswith(b"data: {") or change is None:
            return frame + b"\n\n"
        return b"".join(sse(document) for document in _several(change(orjson.loads(frame[6:]))))

    async def _whole(self) -> None:
        start, body = self._edited.head(self._start), self._held
        change = self._edited.change_of(start["status"])
        if change is not None and body.startswith(b"{"):
            body = orjson.dumps(_several(change(orjson.loads(body)))[0])
        headers = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
        headers.append((b"content-length", b"%d" % len(body)))
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


def _several(changed: Document | Sequence[Document]) -> Sequence[Document]:
    return [changed] if isinstance(changed, dict) else changed


def sse(document: Document) -> bytes:
    return b"data: " + orjson.dumps(document) + b"\n\n"


def spoken(document: Document) -> Iterable[tuple[Document, str]]:
    """Where a document of any route holds generated text: (holder, name of the field)."""
    if "meta_info" in document:
        yield document, "text"
    for choice in document.get("choices") or []:
        if "text" in choice:
            yield choice, "text"
        for name in ("message", "delta"):
            if isinstance(choice.get(name), dict):
                yield choice[name], "content"
