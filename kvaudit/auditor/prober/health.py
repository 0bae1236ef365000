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
from kvaudit.auditor.transport.errors import ConnectionRefused

SECONDS = 60.0
"""For a target to come back; more where honest answers were seen to take longer."""

RESTARTING = 330.0
"""For one that says at once that nobody is there (502, 503, no listener): a gateway whose workers restart says so."""

LONGEST = 900.0
"""In all, pauses that a rate limit asks for among it."""

PAUSE = 3.0
PATIENCE = 20.0
"""Seconds after which a request that hangs gets another beside it."""

NOBODY_THERE = (502, 503)
NODE_SECONDS = 10.0
ALIVE = (Outcome.ANSWERED, Outcome.EMPTY, Outcome.CUT, Outcome.STRANGER, Outcome.DENIED, Outcome.GUARDED)
"""A refused key says nothing about health and is left to the trials."""


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """What is wrong, "" when nothing is. ``limited``: it is only a rate limit, ``wait`` seconds long where it says so;
    ``absent``: the target says at once that nobody is there, as in a restart."""

    problem: str = ""
    limited: bool = False
    absent: bool = False
    wait: float | None = None


class Clock(Protocol):
    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


async def watched(
    clock: Clock, look: Callable[[float], Awaitable[HealthProblem]], seconds: float = SECONDS
) -> str:
    """ "" as soon as one look within ``seconds`` finds nothing wrong, else the last sentence. `Stop` when the target
    only says that we ask too often."""
    began = clock.now()
    until = began + seconds
    waiting: set[asyncio.Task[HealthProblem]] = set()
    problem = HealthProblem(f"An ordinary short request was not answered within {seconds:g} s.")
    try:
        while clock.now() < until:
            left = until - clock.now()
            waiting.add(asyncio.create_task(_once(look, max(left, 1.0))))
            done, waiting = await asyncio.wait(
                waiting, timeout=min(PATIENCE, left), return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                problem = task.result()
                if not problem.problem:
                    return ""
            if done:
                until = max(until, min(_until(problem, began, clock.now(), seconds), began + LONGEST))
                await clock.sleep(max(PAUSE, problem.wait or 0.0))
        if waiting:
            done, waiting = await asyncio.wait(waiting, timeout=5.0)
            for task in done:
                problem = task.result()
                if not problem.problem:
                    return ""
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    if problem.limited:
        raise Stop("The target refuses even a short request as too many (429): ask it in a quieter window.")
    return problem.problem


def _until(problem: HealthProblem, began: float, now: float, seconds: float) -> float:
    """Until when to look on, after what was found."""
    if problem.wait is not None:
        return now + max(PAUSE, problem.wait) + seconds
    return began + RESTARTING if problem.absent else 0.0


async def _once(look: Callable[[float], Awaitable[HealthProblem]], seconds: float) -> HealthProblem:
    return await look(seconds)


async def of_node(wire: Wire, path: str, seconds: float) -> HealthProblem:
    """What a node says of its health; nothing where it does not tell strangers."""
    try:
        answer = await wire.request("GET", path, limits=WireLimits(total=min(seconds, NODE_SECONDS)))
    except TransportError as problem:
        refused = isinstance(problem, ConnectionRefused)
        return HealthProblem(f"A node does not answer its health check any more: {problem}", absent=refused)
    if answer.status in (200, 401, 403, 404):
        return HealthProblem()
    return HealthProblem(
        f"A node's health check answers {answer.status}.", absent=answer.status in NOBODY_THERE
    )


def of_reply(reply: Reply) -> HealthProblem:
    """How a short ordinary request went."""
    if reply.outcome in ALIVE:
        return HealthProblem()
    return HealthProblem(
        f"An ordinary request of {reply.tokens_sent} tokens is not answered any more: "
        f"{reply.error or reply.outcome.value}",
        limited=reply.status == 429,
        absent=reply.status in NOBODY_THERE,
        wait=reply.retry_after,
    )
