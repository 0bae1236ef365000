"""Deployments that must take no traffic."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q

from kvaudit.server.fleet.intervals import Interval, IntervalQuerySet, not_backwards
from kvaudit.server.fleet.models import Deployment


class QuarantineQuerySet(IntervalQuerySet["Quarantine"]):
    def of(self, deployment: Deployment) -> Self:
        """The one that holds now, if any."""
        return self.current().filter(deployment=deployment)


class Quarantine(Interval):
    """A deployment that must take no traffic: the gate refuses it whatever else it says."""

    deployment = models.ForeignKey(Deployment, on_delete=models.PROTECT, related_name="quarantines")
    incident = models.ForeignKey(
        "incidents.Incident", null=True, blank=True, on_delete=models.PROTECT, related_name="quarantines"
    )
    set_by = models.CharField(max_length=200)
    reason = models.CharField(max_length=1_000)
    ended_by = models.CharField(max_length=200, blank=True)
    end_reason = models.CharField(max_length=1_000, blank=True)

    objects = QuarantineQuerySet.as_manager()

    class Meta:
        ordering = ("-valid_from", "-pk")
        constraints = (
            models.UniqueConstraint(
                fields=("deployment",), condition=Q(valid_to=None), name="incidents_quarantine_one_open"
            ),
            not_backwards("incidents_quarantine_interval"),
        )

    def __str__(self) -> str:
        return f"quarantine of {self.deployment}"
