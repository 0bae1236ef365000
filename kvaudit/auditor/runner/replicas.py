"""Reads a node again over fresh connections, to see whether one process answers there or several in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from kvaudit.auditor.checks.replicas import distinct
from kvaudit.auditor.engines import fetch
from kvaudit.auditor.readings import EngineFacts
from kvaudit.auditor.transport import Client, TransportError
from kvaudit.auditor.verdict import Evidence

TRIES = 12
"""Fresh connections for each declared replica. Drawn at random, one of two stays unseen once in 10^7 runs, one of
eight once in a hundred thousand."""

AT_ONCE = 8

WHOLE = 2
"""Further readings that ask everything that answered before: a load balancer may deal by the request, not by the
connection, and starts may be equal."""


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """What further connections brought: processes that are not the first one, and why a connection brought nothing."""

    others: tuple[EngineFacts, ...] = ()
    connections: int = 1
    problem: str = ""
    evidence: tuple[Evidence, ...] = ()


async def read_others(
    open_client: Callable[[float], Client],
    first: fetch.NodeReading,
    *,
    until: float,
    expected: int,
    connections: int,
) -> ReadAgain:
    """Read over ``connections`` in all, or until ``expected`` processes were seen (0 = nobody said how many).

    ``open_client`` takes the seconds that are left and opens a connection of its own. The first `WHOLE` ask
    everything that answered before; later ones only what tells the process, as long as it is a known one.
    """
    if first.facts is None or first.facts.kind != "node" or first.adapter is None or connections < 2:
        return ReadAgain()
    seen, evidence, answered, problem = [first.facts], list[Evidence](), 1, ""
    least = connections - 1
    most = max(least, TRIES * expected)

    def left() -> float:
        return until - asyncio.get_running_loop().time()

    async def fresh(number: int) -> fetch.NodeReading:
        def known(facts: EngineFacts) -> bool:
            return number >= WHOLE and not all(distinct(facts, each) for each in seen)

        try:
            async with open_client(max(left(), 0.1)) as client:
                return await fetch.read_again(client, first, seconds=max(left(), 0.1), enough=known)
        except TransportError as error:
            return fetch.NodeReading(problem=str(error))

    async def fresh_or_once_more(number: int) -> fetch.NodeReading:
        reading = await fresh(number)
        return reading if reading.facts is not None or left() <= 0 else await fresh(number)

    tried = 0
    while tried < least or (tried < most and len(seen) < expected and left() > 0):
        numbers = range(tried, min(tried + AT_ONCE, least if tried < least else most))
        tried = numbers.stop
        for reading in await asyncio.gather(*map(fresh_or_once_more, numbers)):
            if reading.facts is None:
                problem = problem or reading.problem
                continue
            answered += 1
            if all(distinct(reading.facts, each) for each in seen):
                seen.append(reading.facts)
                evidence += reading.evidence
    return ReadAgain(tuple(seen[1:]), answered, problem, tuple(evidence))
