"""Holds a request inside one node: what came in, how far it is, and how it ends.

In disaggregated serving one client request is two of these, one in the prefill and one in the
decode node; they share a *room* (the meeting place of the transfer) and a *ticket* (the writer tag
of the slots written on its behalf).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import numpy as np

from kvaudit.lab.model import PLACEHOLDER, KVSequence
from kvaudit.lab.pool import Tokens


@dataclass(frozen=True, slots=True)
class FinishLength:
    """The output limit was reached."""

    length: int


@dataclass(frozen=True, slots=True)
class FinishStop:
    """A stop string was found."""

    matched: str


@dataclass(frozen=True, slots=True)
class FinishAbort:
    """The request failed; ``status`` is the HTTP status that says so."""

    message: str
    status: int = 400
    err_type: str = "BadRequestError"


Finish = FinishLength | FinishStop | FinishAbort


class Refused(Exception):
    """The front door refuses, before anything is queued. ``param`` names the field at fault."""

    def __init__(self, message: str, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.message, self.status, self.param = message, status, param


@dataclass(slots=True)
class Call:
    """What a client asks: token ids, limits, and in disaggregated serving the room."""

    input_ids: Tokens
    max_new_tokens: int
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    salt: str = ""
    room: int | None = None
    rid: str = ""
    ticket: int = 0
    tenant: str = ""


@dataclass(slots=True, eq=False)
class Request:
    """``prompt_tokens`` is what this node will report as the prompt's length; after
    `set_finish_with_abort` the prefill node's is 1, the decode node's stays what the client sent."""

    call: Call
    input_ids: Tokens
    max_new_tokens: int
    received: float
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_ids: list[int] = field(default_factory=list)
    finished_reason: Finish | None = None
    to_finish: FinishAbort | None = None
    first_token_at: float | None = None
    _progress: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.input_ids)

    @property
    def ticket(self) -> int:
        return self.call.ticket

    def finished(self) -> bool:
        """Whether the request has ended. An abort that waits in ``to_finish`` is not an end yet:
        whoever looks only here takes a rejected request for a live one (sglang #30233)."""
        return self.finished_reason is not None

    def set_finish_with_abort(self, message: str) -> None:
        """Reject at intake: the abort waits in ``to_finish`` for the first pass through the model,
        and the prompt is replaced by a one-token placeholder so that it is cheap to carry along
        (SGLang 0.5.19, schedule_batch.py)."""
        self.input_ids = np.array([PLACEHOLDER], np.uint16)
        self.prompt_tokens = 1
        self.to_finish = FinishAbort(message)

    def emit(self, token: int, at: float) -> None:
        if self.first_token_at is None:
            self.first_token_at = at
        self.output_ids.append(token)
        self._progress.set()

    def finish(self, reason: Finish) -> None:
        """End with ``reason``; the first end stands."""
        if self.finished_reason is None:
            self.finished_reason = reason
        self._progress.set()

    async def progress(self) -> AsyncIterator[int]:
        """Yields the number of output tokens whenever it has grown, and once more at the end."""
        while True:
            await self._progress.wait()
            self._progress.clear()
            yield len(self.output_ids)
            if self.finished():
                return


def text_of(tokens: list[int]) -> str:
    """One byte is one token; bytes that are no UTF-8 become the replacement character."""
    return bytes(token for token in tokens if token < 256).decode("utf-8", errors="replace")


def encode(text: str) -> Tokens:
    """Text to token ids: its UTF-8 bytes."""
    return np.frombuffer(text.encode("utf-8", errors="replace"), np.uint8).astype(np.uint16)


@dataclass(slots=True, eq=False)
class BatchRow:
    """A request in the running batch and the sequence that its row points to."""

    request: Request
    sequence: KVSequence
    last: int  # the token emitted last, not in the pool yet
    stepping: bool = False  # its pages are being read and written now
