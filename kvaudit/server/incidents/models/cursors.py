"""How far changes of state have been read, and which have had their consequences."""

from __future__ import annotations

from django.db import models

from kvaudit.server import clock
from kvaudit.server.audits.models import StateChange


class Cursor(models.Model):
    """How far changes of state have been read, by whom: one row per reader, locked while reading."""

    reader = models.CharField(max_length=40, primary_key=True)
    last_id = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.reader} at {self.last_id}"


class Handled(models.Model):
    """A change that has had its consequences. Rows become visible in the order of commits, not of keys,
    so that the reader looks back a little, and this keeps it from acting twice."""

    change = models.OneToOneField(StateChange, on_delete=models.CASCADE, related_name="+", primary_key=True)
    at = models.DateTimeField(default=clock.now)

    def __str__(self) -> str:
        return f"change {self.change_id}"
