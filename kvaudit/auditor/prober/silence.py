"""Tests whether a prompt without an answer holds up everybody, by a short request beside it.

A real vLLM whose pool is below its context hangs for ever on a prompt that the context allows: other
tenants hang with it, ``/health`` stays 200, ``/metrics`` shows nothing waiting (vllm.md 0). Only a
request that was answered before and is answered no more tells this from a prompt that takes its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from kvaudit.auditor.checks.prober_protocol import Outcome, Reply, Stop

BESIDE = 20.0
"""Seconds without a frame after which a short request is sent beside a prompt."""

SILENT = 30.0
"""Seconds for which a short request must have been silent to say anything; calibration gives it as much."""

LAST_WORDS = 2.0
"""Seconds that a request may still take when the run has to stop; less than the runner's grace."""

GLANCE = 0.5
SOON = 10.0
"""Seconds in which the short request is answered once the long one is: they waited for the same thing."""

WITHOUT_ANSWER = (Outcome.TIMED_OUT, Outcome.FAILED, Outcome.BROKEN)

DO_NOT_REPEAT = (
    "Restart the deployment. Send it no prompt of {tokens:,} tokens again, in no check and not to reproduce this, "
    "before its pool holds its whole context, an edge limit below that length is set, or the engine is upgraded."
)


@dataclass(frozen=True, slots=True)
class Wedge:
    """A prompt after which nothing was answered any more. ``proven`` is False where the run had to stop
    before the wait was over."""

    tokens: int
    sentence: str
    proven: bool = True

    @property
    def next_step(self) -> str:
        return DO_NOT_REPEAT.format(tokens=self.tokens)

    @property
    def measures(self) -> dict[str, Any]:
        return {"wedged": "yes" if self.proven else "suspected", "wedged_tokens": self.tokens}


@dataclass(slots=True)
class Pulse:
    """When something of an answer was last heard, in seconds of the target's clock."""

    heard: float


class Target(Protocol):
    """What watching over a request needs of the prober."""

    @property
    def stopped(self) -> Callable[[], str]: ...

    def now(self) -> float: ...

    async def beside(self) -> Reply | None:
        """The reply to a short request of its own; None where none could be sent."""
        ...

    async def why_unwell(self) -> str:
        """What the nodes say of their own health, "" when they say that all is well."""
        ...


@dataclass(slots=True)
class Watch:
    """Watches over the requests of one run. ``control``: the seconds in which a short request was answered
    before, None = never; without it silence proves nothing. ``silent`` is the length in tokens of a prompt
    that keeps a short request waiting now, 0 for none: whoever keeps the run may look at any moment."""

    target: Target
    control: float | None = None
    wedge: Wedge | None = None
    slowest: float = 0.0  # seconds from a short request sent beside to its answer, of those that waited
    slowest_tokens: int = 0
    note_silence: Callable[[int], None] = lambda tokens: None
    _busy: bool = field(default=False, repr=False)
    _answered: float = field(default=-1.0, repr=False)  # when any request was last answered

    async def over(self, work: Coroutine[Any, Any, Reply], pulse: Pulse, tokens: int, least: int) -> Reply:
        """The reply of ``work``. Prompts longer than ``least`` get a short request beside them when they are
        silent. Raises `Stop` when the run must stop first; what was learnt by then is in ``wedge``."""
        now = self.target.now
        request = asyncio.ensure_future(work)
        beside: asyncio.Task[Reply | None] | None = None
        asked = 0.0
        try:
            while not request.done():
                waiting: set[asyncio.Future[Any]] = {request}
                if beside is not None and not beside.done():
                    waiting.add(beside)
                await asyncio.wait(waiting, timeout=GLANCE, return_when=asyncio.FIRST_COMPLETED)
                if request.done():
                    break
                if reason := self.target.stopped():
                    await asyncio.wait({request}, timeout=LAST_WORDS)
                    if request.done():
                        break
                    silent = beside is not None and not beside.done() and now() - asked >= SILENT
                    if silent and self._answered < asked:
                        self._suspect(tokens, now() - asked)
                    raise Stop(reason)
                if beside is None and not self._busy and tokens > least and now() - pulse.heard >= BESIDE:
                    self._busy, asked = True, now()
                    beside = asyncio.ensure_future(self.target.beside())
                if beside is not None and not beside.done() and now() - asked >= SILENT:
                    self.note_silence(tokens)
            reply = request.result()
            if reply.outcome not in WITHOUT_ANSWER:
                self._answered = now()
            if beside is not None:
                await self._compare(reply, beside, tokens, asked)
            return reply
        finally:
            if beside is not None:
                self._busy = False
                self.note_silence(0 if self.wedge is None else self.wedge.tokens)
            await _dropped(request, beside)

    async def _compare(
        self, reply: Reply, beside: asyncio.Task[Reply | None], tokens: int, asked: float
    ) -> None:
        """What the two mean together, once the long one has ended."""
        now = self.target.now
        if reply.outcome not in WITHOUT_ANSWER and not beside.done():
            await asyncio.wait({beside}, timeout=SOON)
        short = beside.result() if beside.done() else None
        waited = now() - asked if short is None else short.seconds
        if beside.done() and (short is None or short.outcome is not Outcome.TIMED_OUT):
            if reply.outcome not in WITHOUT_ANSWER and waited >= SILENT and waited > self.slowest:
                self.slowest, self.slowest_tokens = waited, tokens
            return
        if reply.outcome not in WITHOUT_ANSWER or waited < SILENT or self.control is None:
            return
        if self._answered >= asked:  # by another request of a load: somebody is served
            return
        unwell = await self.target.why_unwell()
        self.wedge = Wedge(
            tokens,
            f"After this prompt of {tokens:,} tokens nothing answered any more: it was silent for "
            f"{reply.seconds:.0f} s, and so was a short request beside it for {waited:.0f} s, which had been answered "
            f"in {self.control:.1f} s before. {unwell or 'The health check answers all the same.'}",
        )

    def _suspect(self, tokens: int, waited: float) -> None:
        if self.control is None:
            return
        self.wedge = Wedge(
            tokens,
            f"When the run had to stop, a prompt of {tokens:,} tokens was silent, and so had a short request beside it "
            f"been for {waited:.0f} s, which had been answered in {self.control:.1f} s before: this prompt may have "
            "stopped the server from answering.",
            proven=False,
        )

    def harmed_by(self, tokens: int, problem: str) -> None:
        """The health check found after a prompt that nothing is answered."""
        if self.wedge is None and tokens and self.control is not None:
            self.wedge = Wedge(
                tokens, f"After a prompt of {tokens:,} tokens nothing answered any more. {problem}"
            )


async def until_stopped(work: Awaitable[Any], stopped: Callable[[], str]) -> Any:
    """The result of ``work``; `Stop` when the run must stop before it is there."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=GLANCE)
            if not task.done() and (reason := stopped()):
                raise Stop(reason)
        return task.result()
    finally:
        await _dropped(task)


async def _dropped(*tasks: asyncio.Future[Any] | None) -> None:
    left = [task for task in tasks if task is not None and not task.done()]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
