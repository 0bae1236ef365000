"""Holds answers: a whole redacted one, or a stream of events with the times that matter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

import httpcore

from kvaudit.auditor.transport.body import Decoder
from kvaudit.auditor.transport.redaction import Redactor
from kvaudit.auditor.transport.sse import SHORT, Event, EventParser
from kvaudit.auditor.verdict import Evidence

LARGE = 2**20
"""Bytes of a body above which redacting it (up to 0.1 s per MB) leaves the event loop."""


def now() -> float:
    """The running loop's clock: monotonic, and simulated where the loop simulates time."""
    return asyncio.get_running_loop().time()


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


class StreamedResponse:
    """An answer whose body is still arriving. Consume it once: `read` or `events`."""

    def __init__(
        self,
        response: httpcore.Response,
        decoder: Decoder,
        redactor: Redactor,
        head: Response,
        began: float,
        header_text: str = "",
    ) -> None:
        self._response = response
        self._decoder = decoder
        self._redactor = redactor
        self._began = began
        self.header_text = header_text
        """The values of all headers, redacted, for searching only."""
        self.skipped: list[str] = []
        """Lines of the stream that belong to no event."""
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
        if self._decoder.plain:
            async for chunk in self._response.aiter_stream():
                self._decoder.count(chunk)
                yield chunk
            return
        async for chunk in self._response.aiter_stream():
            for piece in self._decoder.feed(chunk):
                yield piece
        self._decoder.finish()

    async def read(self) -> Response:
        """The whole body, redacted."""
        whole = b"".join([piece async for piece in self._pieces()])
        if len(whole) > LARGE:  # deadlines of others go on meanwhile
            body, exposed = await asyncio.to_thread(self._redactor.body, whole)
        else:
            body, exposed = self._redactor.body(whole)
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
            now() - self._began,
        )

    async def events(self) -> AsyncIterator[Event]:
        """The events of the stream, redacted, ``[DONE]`` included. Ends with the body or ``[DONE]``;
        `done` and `error` say how it went. The body cap applies to the whole stream."""
        began, clock = self._began, asyncio.get_running_loop().time
        parser = EventParser()
        feed, redact, self.skipped = parser.feed, self._redactor.event, parser.skipped
        plain = self._decoder.plain
        async for piece in self._response.aiter_stream() if plain else self._pieces():
            if plain:
                self._decoder.count(piece)
            for event in feed(piece, clock() - began):
                data = event.data
                clean = redact(data)
                if clean is not data:
                    event = Event(clean, event.event, event.id, event.seconds)
                    self._note(event)
                elif (  # most say nothing but the next word: redact saw no escape, and no error has a shape
                    self.first_token is None
                    or len(data) < SHORT
                    or event.event
                    or '"error' in data
                    or "abort" in data
                ):
                    self._note(event)
                yield event
                if self.done:
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
