"""Draws the load of the `concurrency` check: which lengths, in which arms, by whom, and what is cut off.

Races that were reported needed overlap, unequal lengths, aborts or a nearly full pool (vllm #39589:
128 beside 256 tokens; vllm #26130: five short ones, then a long one; aborts 15 ms after sending and a
retry at once). So the arms differ in exactly these, and the two that have none of them are the controls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kvaudit.auditor.checks.prober_protocol import Limits
from kvaudit.auditor.text.markers import Draw

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

VOLLEY_SHARE = 12
"""One volley for so many requests of an aborting arm."""

FOLLOWERS = 5
EARLIEST_VOLLEY, LATEST_VOLLEY = 0.55, 1.05
"""Of the time to the first token alone: the end of prefill, and the transfer."""

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


@dataclass(frozen=True, slots=True)
class Volley:
    """A long request that is cut off while nothing else is at work, and what goes right after it.

    Alone, the time to its first token can be foretold, so the cut falls into prefill and transfer;
    what follows gets the pages that were just freed, and is answered before a writer that nobody
    stopped has come to its end (sglang #24527, vllm #32255). Under full load those who wait for
    pages wait for their turn as well, and a late write finds pages not yet filled again.
    """

    victim: Job
    followers: tuple[Job, ...]


def volleys_in(arm: str, count: int) -> int:
    """How many volleys an arm of ``count`` requests holds."""
    return count // VOLLEY_SHARE if arm in ABORTING else 0


def volleys_for(arm: str, count: int, lengths: Lengths, draw: Draw) -> list[Volley]:
    """The volleys of an arm; every request in them is one of the arm's ``count``."""
    volleys = []
    for number in range(volleys_in(arm, count)):
        first = number * (FOLLOWERS + 1)
        tenant = draw(2)
        cut = EARLIEST_VOLLEY + (LATEST_VOLLEY - EARLIEST_VOLLEY) * draw(1001) / 1000
        victim = Job(arm, first, "long", tenant, lengths.long.drawn(draw), cut, draw(2) == 0)
        # The first to follow belongs to the other tenant; the rest to either.
        others = [1 - tenant, *(draw(2) for _ in range(FOLLOWERS - 1))]
        spans = [("mid", lengths.mid) if draw(3) == 0 else ("short", lengths.short) for _ in others]
        followers = tuple(
            Job(arm, first + 1 + place, kind, whose, span.drawn(draw))
            for place, (whose, (kind, span)) in enumerate(zip(others, spans, strict=True))
        )
        volleys.append(Volley(victim, followers))
    return volleys


def jobs_for(arm: str, count: int, lengths: Lengths, draw: Draw) -> list[Job]:
    """The jobs of an arm that workers take in turn: what its volleys leave of ``count``. Tenants are
    drawn, so that each is everybody's neighbour."""
    jobs = []
    for number in range(volleys_in(arm, count) * (FOLLOWERS + 1), count):
        kind, tokens = ("equal", lengths.equal) if arm == "equal" else lengths.drawn(draw)
        cut = arm in ABORTING and draw(100) < ABORT_PERCENT
        abort = (1 + draw(1000)) / 1000 * LATEST_ABORT if cut else None
        jobs.append(Job(arm, number, kind, draw(2), tokens, abort, cut and draw(2) == 0))
    return jobs


def arm_tokens(arm: str, count: int, lengths: Lengths) -> float:
    """Prompt tokens that an arm takes on average, retries included."""
    if arm == "equal":
        return float(count * lengths.equal)
    volleys = volleys_in(arm, count)
    follower = (2 * lengths.short.middle + lengths.mid.middle) / 3
    rest = (count - volleys * (FOLLOWERS + 1)) * lengths.mean * (1.1 if arm in ABORTING else 1.0)
    return volleys * (1.5 * lengths.long.middle + FOLLOWERS * follower) + rest


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
