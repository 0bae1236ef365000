"""What was read from nodes, and the changes of their fingerprints."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q

from kvaudit.auditor.readings import Fingerprint
from kvaudit.server.fleet.models.deployments import OfDeployment


class NodeSnapshotQuerySet(OfDeployment["NodeSnapshot"]):
    deployment_is = "node__deployment"


class NodeSnapshot(models.Model):
    """What a node said from ``first_seen`` to ``last_confirmed``: a row per difference, not per run.

    ``facts`` holds every reading as ``{value, source, state}``; pool and context are tokens, null
    when unknown. ``content`` is the digest that decides whether a reading is a new row.
    ``fingerprint`` belongs to this reading; ``reference`` is the fingerprint that later readings
    are compared with: the last significant one, completed by what was learnt since.
    """

    node = models.ForeignKey("fleet.Node", on_delete=models.CASCADE, related_name="snapshots")
    first_seen = models.DateTimeField()
    last_confirmed = models.DateTimeField()
    current = models.BooleanField(default=True)
    engine = models.CharField(max_length=40)
    version = models.CharField(max_length=300, blank=True)
    role = models.CharField(max_length=300, blank=True)
    pool = models.BigIntegerField(null=True)
    context = models.BigIntegerField(null=True)
    process = models.CharField(max_length=300, blank=True)
    digest = models.CharField(max_length=16)
    content = models.CharField(max_length=64)
    facts = models.JSONField()
    fingerprint = models.JSONField()
    reference = models.JSONField()

    objects = NodeSnapshotQuerySet.as_manager()

    class Meta:
        ordering = ("-first_seen", "-pk")
        indexes = (models.Index(fields=("node", "-first_seen"), name="fleet_snapshot_node_time"),)
        constraints = (
            models.UniqueConstraint(
                fields=("node",), condition=Q(current=True), name="fleet_snapshot_one_current"
            ),
        )

    def __str__(self) -> str:
        return f"{self.engine} {self.version}"

    @property
    def reference_fingerprint(self) -> Fingerprint:
        return Fingerprint.from_json(self.reference)


class FingerprintChangeQuerySet(OfDeployment["FingerprintChange"]):
    def significant(self) -> Self:
        """Those that expire evidence."""
        return self.filter(significant=True)


class FingerprintChange(models.Model):
    """A fingerprint moved, seen at ``at``. ``diff`` lists ``{name, before, after, significant}``.

    Only a significant change expires evidence; others (a restart that moved the pool by 1 %, a
    field that became readable) are kept for the timeline.
    """

    deployment = models.ForeignKey(
        "fleet.Deployment", on_delete=models.PROTECT, related_name="fingerprint_changes"
    )
    node = models.ForeignKey("fleet.Node", on_delete=models.PROTECT, related_name="fingerprint_changes")
    at = models.DateTimeField()
    significant = models.BooleanField()
    summary = models.CharField(max_length=500)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    diff = models.JSONField(default=list)

    objects = FingerprintChangeQuerySet.as_manager()

    class Meta:
        ordering = ("-at", "-pk")
        indexes = (
            models.Index(fields=("deployment", "-at"), name="fleet_change_deployment_time"),
            models.Index(
                fields=("deployment", "-at"),
                condition=Q(significant=True),
                name="fleet_change_significant",
            ),
        )

    def __str__(self) -> str:
        return self.summary
