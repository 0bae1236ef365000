"""Parses server-sent events, and reads what an LLM engine's event means (text, error, the end).

Engines put errors inside a 200 stream: as an ``error`` object or string, as a top-level
``object: "error"``, or as ``finish_reason`` abort (reference: error shapes in checks.md 3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from kvaudit.auditor.transport.errors import TooManyFrames

DONE = "[DONE]"
SHORT = 32  # characters: no longer data is taken for it, blanks included

LINES = 20_000
BYTES_PER_LINE = 50
"""A stream may have this many lines, and one more for every 50 bytes: an event takes two, of 200 bytes in all
from any engine. Millions of empty ones would cost seconds in which nothing else is done."""

SKIPPED = 1_000
"""Lines of no event that are kept."""

LF, CR = 10, 13  # as numbers: ten times as fast to look for as b"\n" is

_UNPARSED = object()


@dataclass(slots=True)  # not frozen: a stream is thousands of them, and freezing doubles their cost
class Event:
    """One event. ``seconds`` is the time since the request began to be sent, on a monotonic clock."""

    data: str
    event: str = ""
    id: str = ""
    seconds: float = 0.0
    _parsed: Any = field(default=_UNPARSED, repr=False, compare=False)

    @property
    def done(self) -> bool:
        return len(self.data) < SHORT and self.data.strip() == DONE

    def json(self) -> Any:
        """The parsed payload, or None when it is no JSON. Parsed once."""
        if self._parsed is _UNPARSED:
            try:
                self._parsed = orjson.loads(self.data)
            except orjson.JSONDecodeError:
                self._parsed = None
        return self._parsed

    @property
    def error(self) -> str:
        """The error that this event reports, as text; "" for ordinary events."""
        if (
            not self.event
            and '"error' not in self.data
            and "abort" not in self.data
            and "\\u" not in self.data
        ):
            return ""  # most events by far: no word of any error shape is in them
        payload = self.json()
        if not isinstance(payload, dict):
            return self.data if self.event == "error" else ""
        found = payload.get("error")
        if found:
            return _message(found)
        if payload.get("object") == "error" or self.event == "error":
            return _message(payload)
        return _abort(payload)

    @property
    def text(self) -> str:
        """The generated text in this event: content, reasoning or completion text."""
        payload = self.json()
        if not isinstance(payload, dict):
            return ""
        parts: list[str] = []
        choices = payload.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if not isinstance(choice, dict):
                continue
            delta = choice.get("delta")
            sources = (choice, delta if isinstance(delta, dict) else {})
            for source in sources:
                for name in ("text", "reasoning_content", "reasoning", "content"):
                    if isinstance(source.get(name), str):
                        parts.append(source[name])
        if isinstance(payload.get("text"), str):
            parts.append(payload["text"])
        return "".join(parts)


def _message(found: Any) -> str:
    if isinstance(found, dict):
        message = found.get("message")
        return message if isinstance(message, str) and message else orjson.dumps(found).decode()
    return found if isinstance(found, str) else orjson.dumps(found).decode()


def _abort(payload: dict[str, Any]) -> str:
    """SGLang reports a request it gave up as finish_reason type abort, in meta_info or the choice."""
    places = [payload.get("meta_info")]
    choices = payload.get("choices")
    places += choices if isinstance(choices, list) else []
    for place in places:
        reason = place.get("finish_reason") if isinstance(place, dict) else None
        if isinstance(reason, dict) and reason.get("type") == "abort":
            return _message(reason)
        if reason == "abort":
            return "finish_reason abort"
    return ""


class EventParser:
    """Bytes in, events out, whatever the chunking (WHATWG server-sent events: CR, LF and CRLF end a
    line, ``:`` begins a comment, several data lines join with LF, an event without its closing
    blank line is not delivered)."""

    def __init__(self) -> None:
        self._rest = b""
        self._more: list[bytes] = []  # what came after `_rest` and ends no line yet
        self._first = True
        self._data: list[str] = []
        self._event = ""
        self._id = ""
        self._allowed = float(LINES)  # lines that may still come
        self.skipped: list[str] = []
        """Comments and lines of unknown fields: no part of any event, and yet something that was sent."""

    def feed(self, chunk: bytes, seconds: float = 0.0) -> list[Event]:
        """The events that this chunk ends; `TooManyFrames` for a stream made to cost time."""
        self._allowed += len(chunk) / BYTES_PER_LINE
        if chunk[:6] == b"data: " and chunk[-2:] == b"\n\n" and not (self._rest or self._data or self._event):
            data = chunk[6:-2]
            if LF not in data and CR not in data:  # one whole event of a single data line, as most are
                self._count(2)
                return [Event(data.decode("utf-8", "replace"), "", self._id, seconds)]
        inside_a_line = bool(self._rest) and not self._first and not self._rest.endswith(b"\r")
        if inside_a_line and b"\n" not in chunk and b"\r" not in chunk:
            self._more.append(chunk)  # a line that drips in by the byte costs its length, not its square
            return []
        self._rest = b"".join((self._rest, *self._more, chunk))
        self._more.clear()
        if self._first and len(self._rest) >= 3:
            self._rest = self._rest.removeprefix(b"\xef\xbb\xbf")
            self._first = False
        # A CR at the very end may be half of a CRLF: leave it for the next chunk.
        held = self._rest.endswith(b"\r")
        body = self._rest[:-1] if held else self._rest
        lines = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + (b"\r" if held else b"")
        self._count(len(lines))
        events = (self._line(line.decode(errors="replace"), seconds) for line in lines)
        return [event for event in events if event is not None]

    def _count(self, lines: int) -> None:
        self._allowed -= lines
        if self._allowed < 0:
            raise TooManyFrames(
                "The stream is cut into more events than its length allows for: no engine answers like this, and "
                "reading it was stopped."
            )

    @property
    def unfinished(self) -> bool:
        """Whether the stream ended inside an event."""
        return bool(self._data or self._rest.strip() or any(part.strip() for part in self._more))

    def _line(self, line: str, seconds: float) -> Event | None:
        if not line:
            return self._dispatch(seconds)
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name != "retry" and len(self.skipped) < SKIPPED:
            self.skipped.append(line)
        return None

    def _dispatch(self, seconds: float) -> Event | None:
        data, event = self._data, self._event
        self._data, self._event = [], ""
        if not data:
            return None
        return Event("\n".join(data), event, self._id, seconds)
