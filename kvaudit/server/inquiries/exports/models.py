"""Exports of the history."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from kvaudit.server import clock


class ExportKind(models.TextChoices):
    CSV = "csv"
    JSON = "json"


class ExportState(models.TextChoices):
    READY = "ready"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Export(models.Model):
    """One export of the history: how far it is, and in the end what a whole file must come to. The file itself goes
    to whoever asked for it and is kept nowhere. ``rows`` are results, without a header; ``size`` is bytes."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=4, choices=ExportKind.choices)
    query = models.TextField(max_length=2_000, blank=True)
    created_at = models.DateTimeField(default=clock.now)
    state = models.CharField(max_length=10, choices=ExportState.choices, default=ExportState.READY)
    rows = models.BigIntegerField(default=0)
    size = models.BigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True)  # of a finished one
    seen_at = models.DateTimeField(null=True)  # when something was last sent
    ended_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"export {self.pk} as {self.kind}"

    @property
    def live(self) -> bool:
        return self.state in (ExportState.READY, ExportState.RUNNING)
