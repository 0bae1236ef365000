"""Reads one answer to its end, as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from kvaudit.auditor.checks.prober_protocol import Outcome
from kvaudit.auditor.engines.completion import Call, Dialect
from kvaudit.auditor.prober.aside import MOST_CHARACTERS, Aside
from kvaudit.auditor.prober.pausing import seconds_of
from kvaudit.auditor.prober.replies import ReplyText, longest_text
from kvaudit.auditor.prober.silence import Pulse
from kvaudit.auditor.prober.wire import Wire
from kvaudit.auditor.transport import Limits, TransportError

_LATE = ("DeadlineExceeded", "SilentServer", "ConnectTimedOut")


@dataclass(slots=True)
class Heard:
    """What came. ``outcome`` is None where the answer came to its own end, and what it means is still to be said."""

    said: ReplyText = field(default_factory=ReplyText)
    status: int = 0
    first: float | None = None  # seconds to the first text
    complete: bool = False
    outcome: Outcome | None = None
    problem: str = ""
    aside: Aside = field(default_factory=Aside, repr=False)
    cache_headers: tuple[str, ...] = ()
    retry_after: float | None = None  # seconds that a busy server asks to wait


async def hear(
    wire: Wire,
    call: Call,
    dialect: Dialect,
    *,
    seconds: float,
    cancel_after: float | None,
    max_tokens: int,
    pulse: Pulse,
    now: Callable[[], float],
) -> Heard:
    """Send ``call`` and read what comes, noting every sign of life in ``pulse``; no longer than ``seconds``, and left
    after ``cancel_after`` of them, or when it says more than ``max_tokens`` tokens can."""
    heard = Heard()
    said, most = heard.said, longest_text(max_tokens)
    limits = Limits(total=seconds, read=seconds)
    try:
        async with (
            asyncio.timeout(cancel_after),
            wire.stream("POST", call.path, content=call.body, limits=limits) as answer,
        ):
            heard.status, pulse.heard = answer.status, now()
            heard.aside.add_text("headers", answer.header_text)
            heard.cache_headers = tuple(
                f"{name}: {value}" for name, value in answer.head.headers.items() if "cache" in name
            )
            heard.retry_after = seconds_of(answer.head.headers.get("retry-after", ""))
            if answer.is_event_stream:
                await _events(answer, heard, dialect, most=most, pulse=pulse, now=now)
                heard.complete = answer.done
                heard.aside.add_text("lines of no event", "\n".join(answer.skipped))
            else:
                body = (await answer.read()).body
                document = json_or_none(body)
                if document is None:
                    heard.aside.add_text("body", body[:MOST_CHARACTERS].decode(errors="replace"))
                else:
                    heard.aside.add(document)
                said.add(dialect.parse(document))
                heard.complete = isinstance(document, dict)
                said.garbled = not heard.complete
    except TimeoutError:
        heard.outcome = Outcome.CANCELLED
    except TransportError as failure:
        heard.outcome = Outcome.TIMED_OUT if type(failure).__name__ in _LATE else Outcome.BROKEN
        heard.problem = str(failure)
    if heard.outcome is None and said.length > most:
        heard.outcome = Outcome.BROKEN
        heard.problem = (
            f"The answer is longer than {most:,} characters where {max_tokens} tokens were asked for."
        )
    return heard


async def _events(
    answer: Any, heard: Heard, dialect: Dialect, *, most: int, pulse: Pulse, now: Callable[[], float]
) -> None:
    said, word = heard.said, dialect.next_text
    async for event in answer.events():
        pulse.heard = now()
        payload = event.json()
        if payload is None:
            if event.done:
                break
            if not event.data.strip():  # a keep-alive
                continue
            said.add_garbled(event.error)
            heard.aside.add_text("frames", event.data)
            continue
        text = word(payload, said.model, said.build)
        if text is None:
            heard.aside.add(payload)
            piece = dialect.parse(payload)
            said.add(piece)
            text = piece.text
        elif text:
            said.parts.append(text)
            said.length += len(text)
        if heard.first is None and text:
            heard.first = event.seconds
        if said.length > most:
            break


def json_or_none(body: bytes) -> Any:
    """The document; None where the body is no JSON."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
