"""The load of the `concurrency` check: which lengths, in which arms, by whom, and what is cut off.

Races that were reported needed overlap, unequal lengths, aborts or a nearly full pool (vllm #39589:
128 beside 256 tokens; vllm #26130: five short ones, then a long one; aborts 15 ms after sending and a
retry at once). So the arms differ in exactly these, and the two that have none of them are the controls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kvaudit.checks.asking import Limits
from kvaudit.text.markers import Draw

CONTROLS = ("sequential", "equal")
UNEQUAL = ("mixed", "aborts", "shared prefix")
ARMS = CONTROLS + UNEQUAL
ABORTING = ("aborts", "shared prefix")

REQUESTS = 600
"""300 cover a race that hits 1 of 100 requests at 95 %, 36 pairs the 8 % of vllm #39589."""

LEAST_REQUESTS = 100
WORKERS = 16
MOST_WORKERS = 64
FULL = 0.8
"""Share of the pool that must be in use: a race over pages needs pages to be reused at once."""

ABORT_PERCENT = 20
LATEST_ABORT = 1.2
"""Of the expected time to the first token: before, around and just after it."""

NEAR = 9
"""Lengths stay below N - 8, where consent begins."""


@dataclass(frozen=True, slots=True)
class Span:
    """Lengths in tokens, both ends included."""

    low: int
    high: int

    @property
    def middle(self) -> int:
        return (self.low + self.high) // 2

    def drawn(self, draw: Draw) -> int:
        return self.low + draw(self.high - self.low + 1)


@dataclass(frozen=True, slots=True)
class Lengths:
    """The mixture of checks.md 9, fitted to a limit. ``equal`` is the length of the equal arm."""

    short: Span
    mid: Span
    long: Span
    neutral: Span

    @property
    def equal(self) -> int:
        return self.mid.middle

    @property
    def mean(self) -> float:
        """Tokens of a request of the mixture on average."""
        shares = ((40, self.short), (30, self.mid), (10, self.long), (20, self.neutral))
        return sum(percent * span.middle for percent, span in shares) / 100

    def drawn(self, draw: Draw) -> tuple[str, int]:
        """(kind, tokens): short 40 %, mid 30 %, long 10 %, neutral 20 %."""
        at = draw(100)
        for until, kind in ((40, "short"), (70, "mid"), (80, "long"), (100, "neutral")):
            if at < until:
                span: Span = getattr(self, kind)
                return kind, span.drawn(draw)
        raise AssertionError("percentages end at 100")


def lengths_for(limits: Limits) -> Lengths | None:
    """The mixture for this target: mid is 4k to 16k tokens where the limit allows, else an eighth to a
    half of it. None when the limit is unknown or leaves no room for lengths that differ."""
    n, longest = limits.first_rejected, limits.longest_safe
    if n is None or longest is None or longest < 768:
        return None
    top = min(int(0.95 * n), longest, n - NEAR)
    mid = Span(4096, 16_384) if n >= 65_536 else Span(max(256, n // 8), max(512, n // 2))
    return Lengths(
        short=Span(128, min(512, n // 4)),
        mid=mid,
        long=Span(n // 2, max(n // 2, top)),
        neutral=Span(min(512, n // 4), min(1024, n // 3)),
    )


@dataclass(frozen=True, slots=True)
class Job:
    """One request to send. ``abort`` is a share of the expected time to the first token, None = read
    to the end; ``retry``: the same prompt is sent again as soon as it was cut off."""

    arm: str
    number: int
    kind: str
    tenant: int
    tokens: int
    abort: float | None = None
    retry: bool = False


def jobs_for(arm: str, count: int, lengths: Lengths, draw: Draw) -> list[Job]:
    """The jobs of an arm in their order; tenants take turns at random, so that each is everybody's
    neighbour."""
    jobs = []
    for number in range(count):
        kind, tokens = ("equal", lengths.equal) if arm == "equal" else lengths.drawn(draw)
        cut = arm in ABORTING and draw(100) < ABORT_PERCENT
        abort = (1 + draw(1000)) / 1000 * LATEST_ABORT if cut else None
        jobs.append(Job(arm, number, kind, draw(2), tokens, abort, cut and draw(2) == 0))
    return jobs


def workers_for(limits: Limits, lengths: Lengths) -> int:
    """16, or as many (up to 64) as requests of the mixture are needed to fill the largest pool."""
    pool = limits.largest_pool or limits.pool
    if pool is None:
        return WORKERS
    return max(WORKERS, min(MOST_WORKERS, math.ceil(1.1 * pool / lengths.mean)))


def shuffled(arms: Sequence[str], draw: Draw) -> list[str]:
    """The arms in a drawn order: what changes with time on the server must not look like an arm."""
    order = list(arms)
    for index in range(len(order) - 1, 0, -1):
        other = draw(index + 1)
        order[index], order[other] = order[other], order[index]
    return order
