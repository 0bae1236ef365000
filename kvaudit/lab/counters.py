"""Counts what a node does since its start; `kvaudit.lab.exposition` renders it by flavour."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0)
"""Upper edges in seconds, as vLLM's time to first token has them."""


@dataclass(slots=True)
class Histogram:
    """Seconds counted by bucket; values above the last edge count in ``count`` only."""

    counts: list[int] = field(default_factory=lambda: [0] * len(BUCKETS))
    count: int = 0
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one value."""
        at = bisect_left(BUCKETS, seconds)
        if at < len(BUCKETS):
            self.counts[at] += 1
        self.count += 1
        self.total += seconds


@dataclass(slots=True)
class Counters:
    """Counters of one node since its start; times in seconds."""

    requests: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    cached_tokens: int = 0
    uncached_tokens: int = 0
    prefill_busy: float = 0.0
    aborted: int = 0
    transfer_failed: int = 0
    bootstrap_failed: int = 0
    expired_leases: int = 0
    reads_after_expiry: int = 0
    first_token: Histogram = field(default_factory=Histogram)
    end_to_end: Histogram = field(default_factory=Histogram)
    finished: Counter[str] = field(default_factory=Counter)
