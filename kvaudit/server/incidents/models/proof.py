"""What shows that a fix holds: fixes, replays, external results, overrides, releases. Models; see
`incidents.models`. All of these are history: made once, never edited."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from kvaudit.server import clock
from kvaudit.server.audits.models import Run


class Fix(models.Model):
    """Somebody says that the cause is gone since ``at``. The newest one counts; every test must be later."""

    incident = models.ForeignKey("incidents.Incident", on_delete=models.PROTECT, related_name="fixes")
    at = models.DateTimeField(default=clock.now)
    fixer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    description = models.TextField(max_length=4_000)

    class Meta:
        ordering = ("-at", "-pk")

    def __str__(self) -> str:
        return self.description[:80]


class Replay(models.Model):
    """A run that asks the failing cells of ``original`` again, for this incident."""

    incident = models.ForeignKey("incidents.Incident", on_delete=models.PROTECT, related_name="replays")
    run = models.OneToOneField(Run, on_delete=models.PROTECT, related_name="+")
    original = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="+")
    asked_by = models.CharField(max_length=200)
    at = models.DateTimeField(default=clock.now)

    class Meta:
        ordering = ("-at", "-pk")

    def __str__(self) -> str:
        return f"replay in run {self.run_id}"


class ExternalResult(models.Model):
    """What somebody else's script said, with the digest of its whole output; uploaded by somebody other
    than the fixer. ``fingerprint`` is the deployment's when it was uploaded."""

    incident = models.ForeignKey(
        "incidents.Incident", on_delete=models.PROTECT, related_name="external_results"
    )
    at = models.DateTimeField(default=clock.now)
    uploader = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    evidence = models.ForeignKey("audits.Evidence", on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=200)
    leaked = models.BooleanField()
    description = models.CharField(max_length=1_000)
    fingerprint = models.CharField(max_length=64)

    class Meta:
        ordering = ("-at", "-pk")

    def __str__(self) -> str:
        return self.name


class Override(models.Model):
    """Asked for by one person, decided by another. An approved one opens the gate once, for the
    fingerprint it was asked for, and stays on the incident for good."""

    incident = models.ForeignKey("incidents.Incident", on_delete=models.PROTECT, related_name="overrides")
    reason = models.TextField(max_length=4_000)
    fingerprint = models.CharField(max_length=64)
    requester = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    requested_at = models.DateTimeField(default=clock.now)
    approved = models.BooleanField(null=True, blank=True)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    decided_at = models.DateTimeField(null=True, blank=True)
    note = models.CharField(max_length=1_000, blank=True)

    class Meta:
        ordering = ("-requested_at", "-pk")
        constraints = (
            models.UniqueConstraint(
                fields=("incident",), condition=Q(approved=None), name="incidents_override_one_pending"
            ),
            models.CheckConstraint(
                condition=Q(approved=None, decided_by=None)
                | (Q(approved__isnull=False, decided_by__isnull=False) & ~Q(decided_by=F("requester"))),
                name="incidents_override_second_person",
            ),
        )

    def __str__(self) -> str:
        return f"override for incident {self.incident_id}"


class Release(models.Model):
    """That the gate let a deployment back: by whom, for which fingerprint, on which evidence.

    ``grounds`` is what every requirement of the gate said at that moment; with ``override`` it shows
    what was passed over.
    """

    incident = models.ForeignKey("incidents.Incident", on_delete=models.PROTECT, related_name="releases")
    at = models.DateTimeField(default=clock.now)
    released_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    fingerprint = models.CharField(max_length=64)
    grounds = models.JSONField()
    runs = models.ManyToManyField(Run, related_name="+")
    override = models.OneToOneField(
        Override, null=True, blank=True, on_delete=models.PROTECT, related_name="release"
    )

    class Meta:
        ordering = ("-at", "-pk")

    def __str__(self) -> str:
        return f"release of incident {self.incident_id}"
