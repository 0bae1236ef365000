"""Messages about imported request logs, in the transaction that keeps them."""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings

from kvaudit.server.inquiries.request_logs.models import RequestLog
from kvaudit.server.inquiries.request_logs.percentiles import TooFast
from kvaudit.server.notify.models import Event
from kvaudit.server.notify.services import enqueue

NEXT = (
    "It is a leak's signature, or a cached prefix. Run rejection, coherence and prefill on this deployment; where "
    "they pass, look for a prefix cache that serves long prompts."
)


def notify_too_fast(log: RequestLog, odd: Sequence[TooFast]) -> None:
    """Tell the team's channels of production prefill that is too fast to be true; of the same file only once."""
    deployment = log.deployment
    before = RequestLog.objects.of(deployment).filter(sha256=log.sha256, pk__lt=log.pk)
    if not odd or before.exists():
        return
    worst = odd[-1].bucket
    lengths = f"{worst.low:,} to {worst.high - 1:,} tokens"
    enqueue(
        event=Event.TOO_FAST.value,
        subject=f"{deployment.slug}: prompts of {lengths} were prefilled too fast to be true",
        payload={
            "event": Event.TOO_FAST.value,
            "team": deployment.team.slug,
            "deployment": deployment.slug,
            "summary": " ".join(fast.sentence for fast in odd),
            "next": NEXT,
            "url": f"{settings.BASE_URL}/d/{deployment.slug}/exposure/logs/{log.pk}/#prefill",
            "buckets": [
                {
                    "from": fast.bucket.low, "to": fast.bucket.high, "p5_seconds": fast.bucket.p5, "n": fast.bucket.n,
                    "shorter_from": fast.shorter.low, "shorter_to": fast.shorter.high,
                    "shorter_p5_seconds": fast.shorter.p5,
                }
                for fast in odd
            ],
        },
        team=deployment.team,
    )  # fmt: skip
