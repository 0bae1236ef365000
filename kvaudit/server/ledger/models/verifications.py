"""Walks along the chain as queued work: who asked, how far it is, what it found. Pages read these rows; the proof
is the chain itself (`kvaudit ledger verify`), since whoever can forge entries can write rows as well."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models
from django.db.models import OuterRef, Q, Subquery

from kvaudit.server import clock

SILENT = timedelta(seconds=60)
"""A worker writes every second; one that wrote nothing for so long is gone."""


class Outcome(models.TextChoices):
    INTACT = "intact", "Intact"
    BROKEN = "broken", "Broken"
    ERROR = "error", "Not carried out"


class VerificationQuerySet(models.QuerySet["Verification"]):
    def ended(self) -> VerificationQuerySet:
        """Newest end first."""
        return self.exclude(finished_at=None).order_by("-finished_at", "-pk")

    def decided(self) -> VerificationQuerySet:
        """Those that came to know something."""
        return self.ended().exclude(outcome=Outcome.ERROR)

    def to_tell(self) -> VerificationQuerySet:
        """Those that found it broken, and of which nobody has been told."""
        return self.filter(outcome=Outcome.BROKEN, told=False)

    def beginning(self) -> VerificationQuerySet:
        """Those before which no walk had found it broken: the last that decided anything found it in order, or there
        was none."""
        earlier = Verification.objects.decided().filter(finished_at__lt=OuterRef("finished_at"))
        rows = self.annotate(before=Subquery(earlier.values("outcome")[:1]))
        return rows.filter(Q(before=None) | ~Q(before=Outcome.BROKEN))

    def open(self) -> VerificationQuerySet:
        """Waiting or under way, a lost one included; newest first."""
        return self.filter(finished_at=None).order_by("-pk")

    def claimable(self, now: datetime) -> VerificationQuerySet:
        """Not begun, or begun by a worker that is gone."""
        return self.filter(Q(started_at=None) | Q(seen_at__lt=now - SILENT), finished_at=None)


class Verification(models.Model):
    """One walk. ``entries`` counts those found in order so far, of ``wanted``; ``last_hash`` is the hash of the
    last of them. ``sentence`` names the first bad entry, or says why nothing is known."""

    asked_by = models.CharField(max_length=200)
    asked_at = models.DateTimeField(default=clock.now)
    started_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    token = models.UUIDField(null=True)  # of the worker that has it
    wanted = models.BigIntegerField(default=0)
    entries = models.BigIntegerField(default=0)
    last_hash = models.CharField(max_length=64, blank=True)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, blank=True)
    sentence = models.CharField(max_length=500, blank=True)
    told = models.BooleanField(default=False)  # of one that found it broken: channels have been looked for

    objects = VerificationQuerySet.as_manager()

    class Meta:
        app_label = "ledger"
        ordering = ("-pk",)
        indexes = (models.Index(fields=("-finished_at",), name="ledger_verification_ended"),)

    def __str__(self) -> str:
        return f"verification {self.pk}: {self.outcome or 'open'}"

    def lost(self, now: datetime) -> bool:
        """Begun, not ended, and its worker says nothing any more."""
        return self.finished_at is None and self.seen_at is not None and now - self.seen_at > SILENT
