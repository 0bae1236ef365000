"""Computes the 5th percentile of prefill seconds per length bucket, in constant memory. Pure.

A prompt that was prefilled faster than shorter ones take was not prefilled: an oddly fast long prompt is a
leak's signature. 59 requests are the least of which the fastest bounds the 5th percentile (0.95^59 < 5 %).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LEAST = 59
SHARE = 0.05
STEP = math.log(1.01)
"""Width of a bin: the percentile is right to 1 %."""

FIRST_BUCKET = 1_024  # tokens; each bucket is twice as wide as the one before

HALF = 0.5
"""As for timed probes (`kvaudit.auditor.stats.ttft.judge`): a p5 of 59 scatters; more than half is no sign."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Prompts of [low, high) tokens. ``p5`` in seconds, None below `LEAST` requests."""

    low: int
    high: int
    n: int
    p5: float | None


class Percentiles:
    def __init__(self) -> None:
        self._bins: dict[int, Counter[int]] = defaultdict(Counter)

    def add(self, tokens: int, seconds: float) -> None:
        self._bins[bucket_of(tokens)][math.floor(math.log(seconds) / STEP)] += 1

    def buckets(self) -> list[Bucket]:
        """In order of length."""
        return [
            Bucket(*limits(number), bins.total(), _p5(bins)) for number, bins in sorted(self._bins.items())
        ]


def bucket_of(tokens: int) -> int:
    return max(0, (tokens // FIRST_BUCKET).bit_length())


def limits(bucket: int) -> tuple[int, int]:
    return (0 if bucket == 0 else FIRST_BUCKET << (bucket - 1)), FIRST_BUCKET << bucket


def _p5(bins: Counter[int]) -> float | None:
    total = bins.total()
    if total < LEAST:
        return None
    wanted = max(1, math.ceil(SHARE * total))
    seen = 0
    for place, count in sorted(bins.items()):
        seen += count
        if seen >= wanted:
            return math.exp((place + 0.5) * STEP)
    return None


def shown(seconds: float | None) -> str:
    """Two digits: more than a bin and a scatter of 59 requests can hold."""
    if seconds is None:
        return "unknown"
    return f"{seconds:.2g}" if seconds < 99.5 else f"{seconds:,.0f}"


@dataclass(frozen=True, slots=True)
class TooFast:
    """A bucket whose p5 lies below half of that of a shorter one."""

    bucket: Bucket
    shorter: Bucket

    @property
    def sentence(self) -> str:
        fast, slow = self.bucket, self.shorter
        return (
            f"Prompts of {fast.low:,} to {fast.high - 1:,} tokens were prefilled in {shown(fast.p5)} s (p5 of "
            f"{fast.n:,} requests), while those of {slow.low:,} to {slow.high - 1:,} took {shown(slow.p5)} s."
        )


def too_fast(buckets: Iterable[Bucket]) -> Sequence[TooFast]:
    """Longer prompts whose fastest twentieth took less than half the time of that of shorter ones. Of the shorter
    buckets the slowest is named."""
    found = []
    slowest: Bucket | None = None
    for bucket in sorted(buckets, key=lambda each: each.low):
        if bucket.p5 is None:
            continue
        if slowest is not None and slowest.p5 is not None and bucket.p5 < slowest.p5 * HALF:
            found.append(TooFast(bucket, slowest))
        if slowest is None or slowest.p5 is None or bucket.p5 > slowest.p5:
            slowest = bucket
    return found
