"""What people write about an incident: impact, timeline, causes, action items.

Impact and timeline are versioned rows: an edit closes one and opens the next under the same series.
"""

from __future__ import annotations

import uuid
from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from kvaudit.server import clock
from kvaudit.server.fleet.intervals import Interval, IntervalQuerySet, not_backwards
from kvaudit.server.fleet.models import OfDeployment


class Measure(models.TextChoices):
    """What an impact line counts."""

    RESPONSES = "responses", "Responses"
    TENANTS = "tenants", "Tenants"
    LENGTHS = "lengths", "Lengths"
    OTHER = "other", "Other"


class Certainty(models.TextChoices):
    KNOWN = "known", "Known"
    ESTIMATED = "estimated", "Estimated"
    UNKNOWN = "unknown", "Unknown"


class Confidence(models.TextChoices):
    """How sure a source makes a statement; the words of the library."""

    STATED = "stated", "Stated"
    SINGLE = "single-source", "Single source"
    INFERRED = "inferred", "Inferred"
    UNVERIFIED = "unverified", "Unverified"


class ImpactLine(Interval):
    """One statement about who or what was hit. An unknown number is a line too, and says so."""

    objects = IntervalQuerySet.as_manager()

    incident = models.ForeignKey("incidents.Incident", on_delete=models.PROTECT, related_name="impact_lines")
    series = models.UUIDField(default=uuid.uuid4, editable=False)
    measure = models.CharField(max_length=9, choices=Measure.choices)
    certainty = models.CharField(max_length=9, choices=Certainty.choices)
    statement = models.CharField(max_length=500)
    source = models.CharField(max_length=500, blank=True)
    author = models.CharField(max_length=200)

    class Meta:
        ordering = ("measure", "valid_from", "pk")
        constraints = (
            models.UniqueConstraint(
                fields=("series",), condition=Q(valid_to=None), name="incidents_impact_one_open"
            ),
            not_backwards("incidents_impact_interval"),
        )

    def __str__(self) -> str:
        return self.statement


class TimelineEvent(Interval):
    """What a person says happened at ``at``. System events are read from the audits, never copied."""

    objects = IntervalQuerySet.as_manager()

    incident = models.ForeignKey("incidents.Incident", on_delete=models.PROTECT, related_name="events")
    series = models.UUIDField(default=uuid.uuid4, editable=False)
    at = models.DateTimeField()
    text = models.TextField(max_length=4_000)
    source = models.CharField(max_length=500, blank=True)
    confidence = models.CharField(max_length=13, choices=Confidence.choices, default=Confidence.STATED)
    author = models.CharField(max_length=200)

    class Meta:
        ordering = ("at", "pk")
        constraints = (
            models.UniqueConstraint(
                fields=("series",), condition=Q(valid_to=None), name="incidents_event_one_open"
            ),
            not_backwards("incidents_event_interval"),
        )

    def __str__(self) -> str:
        return self.text[:80]


class Cause(models.Model):
    """One of the causes; what they needed of each other is `Incident.overlap`."""

    incident = models.ForeignKey("incidents.Incident", on_delete=models.PROTECT, related_name="causes")
    text = models.TextField(max_length=4_000)
    author = models.CharField(max_length=200)
    created_at = models.DateTimeField(default=clock.now)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    withdrawn_by = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ("created_at", "pk")

    def __str__(self) -> str:
        return self.text[:80]


class ActionState(models.TextChoices):
    OPEN = "open", "Open"
    DONE = "done", "Done"
    REOPENED = "reopened", "Reopened"  # its check failed again
    DROPPED = "dropped", "Dropped"


class ActionItemQuerySet(OfDeployment["ActionItem"]):
    deployment_is = "incident__deployment"

    def to_do(self) -> Self:
        """Open or open again; what is due first comes first, what has no date last."""
        return self.filter(state__in=("open", "reopened")).order_by(F("due").asc(nulls_last=True), "pk")


class ActionItem(models.Model):
    """Something to do, tied to what enforces it: ``check:pool`` or ``item:5``. Whether that is green is
    read when it is shown; a fail of it reopens a done item by itself."""

    incident = models.ForeignKey("incidents.Incident", on_delete=models.PROTECT, related_name="action_items")
    title = models.CharField(max_length=300)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+")
    due = models.DateField(null=True, blank=True)
    enforced_by = models.CharField(max_length=50, blank=True)
    state = models.CharField(max_length=8, choices=ActionState.choices, default=ActionState.OPEN)
    created_at = models.DateTimeField(default=clock.now)

    objects = ActionItemQuerySet.as_manager()

    class Meta:
        ordering = ("created_at", "pk")
        indexes = (
            models.Index(fields=("enforced_by",), name="incidents_action_done", condition=Q(state="done")),
        )

    def __str__(self) -> str:
        return self.title


class ActionChange(models.Model):
    """One step of an action item's state. Never updated."""

    item = models.ForeignKey(ActionItem, on_delete=models.PROTECT, related_name="changes")
    at = models.DateTimeField(default=clock.now)
    actor = models.CharField(max_length=200)
    before = models.CharField(max_length=8, blank=True)
    after = models.CharField(max_length=8, choices=ActionState.choices)
    reason = models.CharField(max_length=1_000, blank=True)

    class Meta:
        ordering = ("at", "pk")

    def __str__(self) -> str:
        return f"{self.before} to {self.after}"
