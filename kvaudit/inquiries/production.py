"""What imported request logs say of production, for the `prefill` signal."""

from __future__ import annotations

from typing import Any

from kvaudit.fleet.models import Deployment
from kvaudit.inquiries.models import PrefillBucket, RequestLog


def production_p5(deployment: Deployment) -> list[dict[str, Any]]:
    """``{from, to, seconds}`` per length bucket of the newest log that holds prefill seconds: tokens [from, to) and
    the 5th percentile. Empty without one. One query."""
    newest = (
        RequestLog.objects.of(deployment).filter(prefill__p5__isnull=False).order_by("-id").values("id")[:1]
    )
    found = PrefillBucket.objects.filter(log=newest, p5__isnull=False).order_by("low")
    return [
        {"from": low, "to": high, "seconds": p5} for low, high, p5 in found.values_list("low", "high", "p5")
    ]
