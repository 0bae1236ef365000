"""Incidents, how they moved, and the results they rest on."""

from __future__ import annotations

from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Exists, F, OuterRef, Q

from kvaudit.server import clock
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.models import Result, Run
from kvaudit.server.fleet.models import Deployment, OfDeployment
from kvaudit.server.incidents.models.proof import Release, Replay
from kvaudit.server.incidents.models.quarantine import Quarantine


class Kind(models.TextChoices):
    """Why incidents open: one is open per deployment and kind while it lasts."""

    LEAK = "leak", "Verified leak"
    BOUNDARY = "boundary", "Failed boundary"
    OTHER = "other", "Reported by a person"


class State(models.TextChoices):
    OPEN = "open", "Open"
    MITIGATED = "mitigated", "Mitigated"  # tenants are out of danger; the fix is not proved
    RESTORED = "restored", "Restored"  # the restore gate let it back, by both tests or an override
    CLOSED = "closed", "Closed"  # and the postmortem is written


class Severity(models.TextChoices):
    CRITICAL = "critical", "Critical"
    HIGH = "high", "High"
    MEDIUM = "medium", "Medium"
    LOW = "low", "Low"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class CitationQuerySet(models.QuerySet["Citation"]):
    def with_results(self) -> Self:
        return self.select_related("result__run")


class IncidentQuerySet(OfDeployment["Incident"]):
    def lasting(self) -> Self:
        """Not closed yet."""
        return self.exclude(state="closed")

    def of_run(self, run: Run) -> Self:
        """Those that have to do with a run, oldest first: ``cites`` results of it, ``replayed`` in it, or
        ``released`` on it (annotated)."""
        mine = OuterRef("pk")
        return (
            self.filter(deployment=run.deployment_id)
            .annotate(
                cites=Exists(Citation.objects.filter(incident=mine, result__run=run)),
                replayed=Exists(Replay.objects.filter(incident=mine, run=run)),
                released=Exists(Release.objects.filter(incident=mine, runs=run)),
            )
            .filter(Q(cites=True) | Q(replayed=True) | Q(released=True))
            .order_by("id")
        )

    def listed(self) -> Self:
        """What a list row needs, without a query per row; ``quarantined`` and ``overridden`` annotated."""
        return self.select_related("deployment__team", "lead").annotate(
            quarantined=Exists(Quarantine.objects.current().filter(deployment=OuterRef("deployment"))),
            overridden=Exists(Release.objects.filter(incident=OuterRef("pk"), override__isnull=False)),
        )


class Incident(models.Model):
    """What went wrong on one deployment. Its number is its key.

    Lengths are tokens, null where unknown. The exposure window runs from the last valid pass of the
    failing check (null: there was none) to its first fail. The text fields are Markdown, sanitised
    when they are shown.
    """

    deployment = models.ForeignKey(Deployment, on_delete=models.PROTECT, related_name="incidents")
    kind = models.CharField(max_length=8, choices=Kind.choices)
    title = models.CharField(max_length=200)
    severity = models.CharField(max_length=8, choices=Severity.choices)
    state = models.CharField(max_length=9, choices=State.choices, default=State.OPEN)
    opened_at = models.DateTimeField(default=clock.now)
    opened_by = models.CharField(max_length=200)
    lead = models.ForeignKey(
        User, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )  # who works on it
    mitigated_at = models.DateTimeField(null=True, blank=True)
    restored_at = models.DateTimeField(null=True, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)

    affected_from = models.BigIntegerField(null=True, blank=True)
    affected_to = models.BigIntegerField(null=True, blank=True)
    roles = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    builds = ArrayField(models.CharField(max_length=120), default=list, blank=True)
    fingerprint = models.CharField(max_length=64, blank=True)
    first_evidence_at = models.DateTimeField(null=True, blank=True)
    last_evidence_at = models.DateTimeField(null=True, blank=True)
    window_from = models.DateTimeField(null=True, blank=True)
    window_to = models.DateTimeField(null=True, blank=True)
    window_check = models.CharField(max_length=40, blank=True)

    summary = models.TextField(max_length=20_000, blank=True)
    detection = models.TextField(max_length=20_000, blank=True)
    missed_by = models.TextField(max_length=20_000, blank=True)  # what should have caught it and did not
    overlap = models.TextField(max_length=20_000, blank=True)  # what the causes needed of each other
    lessons = models.TextField(max_length=20_000, blank=True)

    objects = IncidentQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(
                fields=("deployment", "kind"),
                condition=~Q(state="closed") & ~Q(kind="other"),
                name="incidents_one_open_per_kind",
            ),
            models.CheckConstraint(
                condition=Q(affected_from=None)
                | Q(affected_to=None)
                | Q(affected_to__gte=F("affected_from")),
                name="incidents_affected_lengths",
            ),
            # A state that was never reached has no moment, and one that holds has its own.
            models.CheckConstraint(
                condition=~Q(state="restored") | Q(restored_at__isnull=False), name="incidents_restored_when"
            ),
            models.CheckConstraint(
                condition=~Q(state="closed") | Q(restored_at__isnull=False, closed_at__isnull=False),
                name="incidents_closed_when",
            ),
        )
        indexes = (
            models.Index(fields=("state", "-id"), name="incidents_by_state"),
            models.Index(fields=("deployment", "-id"), name="incidents_of_deployment"),
        )

    def __str__(self) -> str:
        return f"incident {self.pk}: {self.title}"

    @property
    def is_open(self) -> bool:
        return self.state != State.CLOSED


class Transition(models.Model):
    """One step of an incident's state, written in the transaction that takes it. Never updated."""

    incident = models.ForeignKey(Incident, on_delete=models.PROTECT, related_name="transitions")
    at = models.DateTimeField(default=clock.now)
    actor = models.CharField(max_length=200)
    before = models.CharField(max_length=9, blank=True)
    after = models.CharField(max_length=9, choices=State.choices)
    reason = models.CharField(max_length=1_000)

    class Meta:
        ordering = ("at", "id")

    def __str__(self) -> str:
        return f"{self.before or 'nothing'} to {self.after}"


class Citation(models.Model):
    """A failing result that an incident rests on. PROTECT keeps the result out of retention."""

    incident = models.ForeignKey(Incident, on_delete=models.PROTECT, related_name="citations")
    result = models.ForeignKey(Result, on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField()

    objects = CitationQuerySet.as_manager()

    class Meta:
        ordering = ("at", "id")
        constraints = (
            models.UniqueConstraint(fields=("incident", "result"), name="incidents_citation_once"),
        )

    def __str__(self) -> str:
        return f"{self.result} in incident {self.incident_id}"
