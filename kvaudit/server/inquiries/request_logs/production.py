"""Reads what imported request logs say of production: prefill times for the `prefill` signal, and how long
requests are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kvaudit.server.fleet.models import Deployment
from kvaudit.server.inquiries.request_logs.lengths import RequestCount, between
from kvaudit.server.inquiries.request_logs.models import PrefillBucket, RequestLog
from kvaudit.server.inquiries.request_logs.percentiles import Bucket, TooFast, too_fast


@dataclass(frozen=True, slots=True)
class Production:
    """The 5th percentiles of one log, by length; every bucket has one. ``log`` is the log's primary key."""

    log: int
    imported_at: datetime
    buckets: Sequence[Bucket]

    @property
    def odd(self) -> Sequence[TooFast]:
        """Longer prompts that were prefilled faster than shorter ones. That is a warning and no verdict: only a
        nonce that is missing too shows that a prompt was not read, and production has none."""
        return too_fast(self.buckets)


def production_of(deployment: Deployment) -> Production | None:
    """The newest log with enough prefill seconds for a 5th percentile. One query."""
    newest = (
        RequestLog.objects.of(deployment).filter(prefill__p5__isnull=False).order_by("-id").values("id")[:1]
    )
    found = list(
        PrefillBucket.objects.filter(log=newest, p5__isnull=False).select_related("log").order_by("low")
    )
    if not found:
        return None
    log = found[0].log
    return Production(
        log.pk, log.imported_at, [Bucket(bucket.low, bucket.high, bucket.n, bucket.p5) for bucket in found]
    )


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long the requests of one log are. ``counts`` as `RequestLog.lengths` has them."""

    log: int
    imported_at: datetime
    requests: int
    counts: object

    def between(self, low: int, high: int) -> RequestCount | None:
        """Requests of [low, high) tokens; None where the counts cannot be read."""
        return between(self.counts, low, high)


def lengths_of(deployment: Deployment) -> Lengths | None:
    """Of the newest log that holds requests and kept their lengths. One query."""
    logs = RequestLog.objects.of(deployment).filter(requests__gt=0, lengths__isnull=False)
    found = logs.values_list("pk", "imported_at", "requests", "lengths").first()
    return Lengths(*found) if found else None
