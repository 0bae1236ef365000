"""Ledger entries. The database refuses UPDATE, DELETE and TRUNCATE on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import User

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser


class EntryQuerySet(models.QuerySet["Entry"]):
    def visible_to(self, user: User | AnonymousUser) -> EntryQuerySet:
        """Everything for a fleet-wide auditor and above; nothing for anybody else, since entries
        of all teams are chained together."""
        return self.all() if can(user, "view_ledger") else self.none()

    def about(self, subject: str) -> EntryQuerySet:
        return self.filter(subject=subject)


class Entry(models.Model):
    """One act. ``sequence`` counts from 1 without gaps; ``hash`` covers every field and
    ``previous``, the hash of the entry before ("" for the first). Written by `services.record` only."""

    sequence = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()
    actor = models.CharField(max_length=200)  # user:NAME, token:PREFIX or system:PART
    kind = models.CharField(max_length=100)  # run.finished, fleet.imported, token.created, ...
    subject = models.CharField(max_length=300)  # deployment:SLUG, run:ID, token:PREFIX, ...
    digest = models.CharField(max_length=64, blank=True)  # SHA-256 (hex) of what was done, "" for none
    previous = models.CharField(max_length=64, blank=True)
    hash = models.CharField(max_length=64, unique=True)

    objects = EntryQuerySet.as_manager()

    class Meta:
        ordering = ("sequence",)
        verbose_name_plural = "entries"
        indexes = (models.Index(fields=("subject", "sequence"), name="ledger_entry_subject"),)

    def __str__(self) -> str:
        return f"{self.sequence} {self.kind} {self.subject}"
