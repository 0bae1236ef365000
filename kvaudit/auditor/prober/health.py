"""Tests whether the target still serves others, after every prompt that may have done harm.

Health alone proves nothing: a wedged engine says 200 while nobody is answered (vllm.md 0). One request
may be lost without harm, so another is sent beside it before a minute is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from kvaudit.auditor.checks.prober_protocol import Outcome, Reply, Stop
from kvaudit.auditor.prober.wire import Wire
from kvaudit.auditor.transport import Limits as WireLimits
from kvaudit.auditor.transport import TransportError

SECONDS = 60.0
PAUSE = 3.0
PATIENCE = 20.0
"""Seconds after which a request that hangs gets another beside it."""

NODE_SECONDS = 10.0
ALIVE = (Outcome.ANSWERED, Outcome.EMPTY, Outcome.CUT, Outcome.STRANGER, Outcome.DENIED)
"""A refused key says nothing about health and is left to the trials."""


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """What is wrong, "" when nothing is; ``limited``: it is only a rate limit."""

    problem: str = ""
    limited: bool = False


class Clock(Protocol):
    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


async def watched(clock: Clock, look: Callable[[float], Awaitable[HealthProblem]]) -> str:
    """ "" as soon as one look within a minute finds nothing wrong, else the last sentence. `Stop` when
    the target only says that we ask too often."""
    until = clock.now() + SECONDS
    waiting: set[asyncio.Task[HealthProblem]] = set()
    found = HealthProblem(f"An ordinary short request was not answered within {SECONDS:g} s.")
    try:
        while clock.now() < until:
            left = until - clock.now()
            waiting.add(asyncio.create_task(_once(look, max(left, 1.0))))
            done, waiting = await asyncio.wait(
                waiting, timeout=min(PATIENCE, left), return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                found = task.result()
                if not found.problem:
                    return ""
            if done:
                await clock.sleep(PAUSE)
        if waiting:
            done, waiting = await asyncio.wait(waiting, timeout=5.0)
            for task in done:
                found = task.result()
                if not found.problem:
                    return ""
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    if found.limited:
        raise Stop("The target refuses even a short request as too many (429): ask it in a quieter window.")
    return found.problem


async def _once(look: Callable[[float], Awaitable[HealthProblem]], seconds: float) -> HealthProblem:
    return await look(seconds)


async def of_node(wire: Wire, path: str, seconds: float) -> str:
    """ "" when a node says that it is healthy, or does not tell strangers."""
    try:
        answer = await wire.request("GET", path, limits=WireLimits(total=min(seconds, NODE_SECONDS)))
    except TransportError as problem:
        return f"A node does not answer its health check any more: {problem}"
    return "" if answer.status in (200, 401, 403, 404) else f"A node's health check answers {answer.status}."


def of_reply(reply: Reply) -> HealthProblem:
    """How a short ordinary request went."""
    if reply.outcome in ALIVE:
        return HealthProblem()
    return HealthProblem(
        f"An ordinary request of {reply.tokens_sent} tokens is not answered any more: "
        f"{reply.error or reply.outcome.value}",
        limited=reply.status == 429,
    )
