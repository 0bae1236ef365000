"""Reads the engines' counters beside a canary run, and begins the run with a pool of own frames."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kvaudit.auditor.checks.canary.dirtying import Record
from kvaudit.auditor.checks.canary.seen import CanarySeen
from kvaudit.auditor.checks.prober_protocol import Prober
from kvaudit.auditor.checks.serving import largest_pool

FILLING = "filling"
"""Name of the prompts that fill the pools before the rounds."""

MOST_OF_BUDGET = 0.5
"""Share of a check's prompt tokens that may fill pools: what is left must be worth it."""

MOST_OF_TIME = 0.25

PIECES = 16
"""Prompts that fill a pool. A sorted list of free pages begins anew when the next prompt does not fit into its rest,
so that a whole prompt's pages at its end may stay others'."""

ROUTING = 1.5
"""Behind a router the tokens do not spread evenly: so many times the pools may be sent until each was served."""

COUNTED = "served_tokens/"


def pools_to_fill(prober: Prober) -> int:
    """Tokens that a run serves before its rounds, as planned: 0 where pools are unknown, or where only what was
    freed last can be read."""
    serving = prober.serving
    if serving.last_freed_first or serving.unsure:
        return 0
    return largest_pool(serving.roles) or 0


def may_fill(prober: Prober) -> bool:
    """Whether the budget has room for it."""
    ceiling = prober.rounds_ceiling
    return ceiling is None or pools_to_fill(prober) <= MOST_OF_BUDGET * ceiling


class Counting:
    """Counts for one run; what it notes is its observation's record."""

    def __init__(self, prober: Prober, seen: CanarySeen) -> None:
        self._prober, self._seen = prober, seen
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}
        seen.serving = prober.serving
        seen.served = Record(prober.serving.roles, prober.serving.last_freed_first)

    async def read(self) -> int:
        """Read the counters now; returns the number of the reading. A node that does not answer stands still."""
        for name, value in (await self._prober.counters()).items():
            if name.startswith(COUNTED):
                node = int(name.removeprefix(COUNTED))
                self._first.setdefault(node, value)
                self._last[node] = value
        moved = {node: value - self._first[node] for node, value in self._last.items()}
        return self._seen.served.note(moved, self._seen.own_tokens)

    async def fill(self, send: Callable[[int, int], Awaitable[int]]) -> None:
        """Serve one pool of own frames on every replica, where budget and time allow. ``send(number, tokens)`` asks one
        prompt of about so many and returns how many it had."""
        prober, record = self._prober, self._seen.served
        planned = pools_to_fill(prober)
        if not planned or not self._first:
            return
        if not may_fill(prober):
            self._seen.not_filled = "the token ceiling does not allow that before the rounds"
            return
        sent, number, began = 0, 0, prober.now()
        piece = min(pool for role in prober.serving.roles for pool in role.pools.values() if pool) // PIECES
        while record.missing() > 0:
            if sent >= ROUTING * planned or (sent >= planned and record.blind):
                self._seen.not_filled = (
                    "requests did not spread over all of them, or the counters do not show it"
                )
                return
            sent, number = sent + await send(number, piece), number + 1
            await self.read()
            rate = (prober.now() - began) / sent
            if (left := prober.seconds_left) is not None and rate * record.missing() > MOST_OF_TIME * left:
                self._seen.not_filled = "there is no time for that before the rounds"
                return
