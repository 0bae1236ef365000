"""How far the clocks of workers are off, kept where pages and metrics find it."""

from __future__ import annotations

from datetime import timedelta

from django.db import models

from kvaudit.server import clock


class WorkerClock(models.Model):
    """One worker and how far its machine's clock is ahead of the database's (seconds; negative: behind)."""

    name = models.CharField(max_length=200, unique=True)
    skew = models.FloatField(help_text="seconds")
    seen_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name} {self.skew:+.1f} s"

    @property
    def off(self) -> timedelta:
        return timedelta(seconds=self.skew)

    @property
    def refuses(self) -> bool:
        """Whether it takes no work."""
        return is_unusable(self.off)


def is_unusable(off: timedelta) -> bool:
    return abs(off) >= clock.UNUSABLE
