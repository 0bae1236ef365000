"""What runs keep beside their results: evidence by content, and the markers they planted. Models."""

from __future__ import annotations

from django.db import models

from kvaudit.server import clock


class Evidence(models.Model):
    """Redacted bytes named by their own SHA-256; the same answer read a thousand times is one row."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    content_type = models.CharField(max_length=100, blank=True)
    encoding = models.CharField(max_length=10, default="zlib")
    size = models.PositiveIntegerField(help_text="bytes before compression")
    body = models.BinaryField()
    created_at = models.DateTimeField(default=clock.now)

    def __str__(self) -> str:
        return self.sha256


class RunEvidence(models.Model):
    """That a run kept this evidence, where it came from and of which node (its name then)."""

    run = models.ForeignKey(
        "audits.Run", on_delete=models.CASCADE, related_name="kept_evidence", db_index=False
    )
    evidence = models.ForeignKey(Evidence, on_delete=models.PROTECT, related_name="uses")
    kind = models.CharField(max_length=10)  # response, request, reading or sealed
    source = models.CharField(max_length=300)
    node_name = models.CharField(max_length=120, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "evidence", "source"], name="audits_run_evidence_once"),
        ]

    def __str__(self) -> str:
        return self.source


class PrunedEvidence(models.Model):
    """That retention dropped what a run had kept. ``kept`` lists ``[kind, sha256, source, node name]`` of all of it, so
    that the run's digest can be computed as before; ``digest`` is what that came to. Its entry in the ledger
    (`evidence.pruned`) holds the digest of this row."""

    run = models.OneToOneField("audits.Run", on_delete=models.PROTECT, related_name="pruned")
    at = models.DateTimeField(default=clock.now)
    kept = models.JSONField()
    digest = models.CharField(max_length=64)

    def __str__(self) -> str:
        return f"evidence of run {self.run_id}, pruned"


class Planting(models.Model):
    """The markers that one attempt of a run planted: live for 30 days, since a page may surface late.

    ``markers`` lists ``{words, tenant, request, decoy}`` (`kvaudit.auditor.text.markers.as_measure`): our own words,
    drawn for this run, never a customer's text.
    """

    deployment = models.ForeignKey(
        "fleet.Deployment", on_delete=models.CASCADE, related_name="plantings", db_index=False
    )
    run = models.ForeignKey("audits.Run", on_delete=models.CASCADE, related_name="plantings", db_index=False)
    attempt = models.PositiveSmallIntegerField()
    sent_at = models.DateTimeField(default=clock.now)  # of the last marker
    markers = models.JSONField(default=list)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "attempt"], name="audits_planting_one_per_attempt"),
        ]
        indexes = [
            models.Index(fields=["deployment", "sent_at"], name="audits_planting_live"),
            models.Index(fields=["sent_at"], name="audits_planting_old"),
        ]

    def __str__(self) -> str:
        return f"{len(self.markers)} markers of run {self.run_id}"
