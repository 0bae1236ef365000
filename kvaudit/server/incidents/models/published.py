"""Incidents that people imported into the library. Model; see `incidents.models`."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from kvaudit.server import clock


class LibraryEntry(models.Model):
    """One imported file of schema ``kvaudit.incident/1``. Importing an id again replaces what is shown and
    keeps the row before (``replaced_at``)."""

    name = models.CharField(max_length=100)
    document = models.JSONField()
    sha256 = models.CharField(max_length=64)
    imported_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    imported_at = models.DateTimeField(default=clock.now)
    replaced_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("name", "-imported_at")
        constraints = (
            models.UniqueConstraint(
                fields=("name",), condition=models.Q(replaced_at=None), name="incidents_library_one_shown"
            ),
        )

    def __str__(self) -> str:
        return self.name
