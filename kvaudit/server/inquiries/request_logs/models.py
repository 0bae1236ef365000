"""What an imported request log came to, and the work of importing one: counts and keyed hashes, never an id in
clear."""

from __future__ import annotations

from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import Q

from kvaudit.server import clock
from kvaudit.server.accounts.sealed_fields import SealedField
from kvaudit.server.fleet.models import Deployment, OfDeployment
from kvaudit.server.inquiries.request_logs.classification import ANY_LENGTH, Judged, Zone, joined


class RequestLogQuerySet(OfDeployment["RequestLog"]):
    def of(self, deployment: Deployment) -> Self:
        """Newest first."""
        return self.filter(deployment=deployment).order_by("-id")


class RequestLog(models.Model):
    """One imported log of a deployment's requests and what it was asked: which of them lay in the danger
    zone, between ``since`` and ``until``.

    ``lengths`` counts all its requests by length: ``[[from, to, requests], ...]`` of [from, to) tokens; null in logs
    that were imported before it was kept. ``zones`` is the list of `zones.Zone` that was applied, as JSON. Requests of
    lengths that were dangerous at any time in or after the window: ``leaking`` came while a leak was shown (inside
    the zone or not), ``unknown`` while nothing was known; ``longer`` came then too, longer than all known lengths.
    Null in logs that were imported before these were counted.
    ``problems`` holds the first of ``problem_count`` lines that could not be read; while there are any, every count
    is a lower bound.
    """

    deployment = models.ForeignKey(Deployment, on_delete=models.PROTECT, related_name="request_logs")
    name = models.CharField(max_length=200)
    sha256 = models.CharField(max_length=64)
    size = models.BigIntegerField(help_text="bytes")
    imported_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    imported_at = models.DateTimeField(default=clock.now)
    since = models.DateTimeField()
    until = models.DateTimeField()
    zones = models.JSONField(default=list)

    lines = models.BigIntegerField()
    requests = models.BigIntegerField()
    in_window = models.BigIntegerField()
    inside = models.BigIntegerField()
    leaking = models.BigIntegerField(null=True)
    unknown = models.BigIntegerField(null=True)
    longer = models.BigIntegerField(null=True)
    first_at = models.DateTimeField(null=True)
    last_at = models.DateTimeField(null=True)
    problem_count = models.BigIntegerField(default=0)
    problems = models.JSONField(default=list)
    tenants_left_out = models.BigIntegerField(default=0)
    lengths = models.JSONField(null=True)

    objects = RequestLogQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.CheckConstraint(condition=Q(until__gt=models.F("since")), name="inquiries_log_window"),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def held_against(self) -> list[Zone]:
        """The danger zones among ``zones``."""
        return [zone for zone in map(Zone.from_json, self.zones) if zone.standing is Judged.DANGER]

    @property
    def known_lengths(self) -> list[tuple[int, int]]:
        """[low, high) tokens, of which requests are told that came while nothing was known; empty where no
        dangerous length was ever known."""
        beside = [zone for zone in map(Zone.from_json, self.zones) if zone.standing is not Judged.DANGER]
        found = joined((zone.low, zone.high) for zone in beside)
        return [] if found == [ANY_LENGTH] else found


class TenantCount(models.Model):
    """Requests of one tenant in a log: all within the window, those inside the danger zone, and, as in its log,
    those while a leak was shown and those while nothing was known."""

    log = models.ForeignKey(RequestLog, on_delete=models.CASCADE, related_name="tenants")
    tenant = models.CharField(max_length=64)  # keyed hash
    requests = models.BigIntegerField()
    inside = models.BigIntegerField()
    leaking = models.BigIntegerField(null=True)
    unknown = models.BigIntegerField(null=True)
    first_inside = models.DateTimeField(null=True)
    last_inside = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-inside", "-leaking", "-unknown", "tenant")
        constraints = (models.UniqueConstraint(fields=("log", "tenant"), name="inquiries_tenant_once_a_log"),)

    def __str__(self) -> str:
        return self.tenant[:12]


class RequestHit(models.Model):
    """A request inside the danger zone, or of such a length while a leak was shown or nothing was known."""

    log = models.ForeignKey(RequestLog, on_delete=models.CASCADE, related_name="hits")
    line = models.BigIntegerField()
    at = models.DateTimeField()
    tokens = models.BigIntegerField()
    tenant = models.CharField(max_length=64)  # keyed hash
    request = models.CharField(max_length=64, blank=True)  # keyed hash; "" where the log has no id
    standing = models.CharField(max_length=20, default=Judged.DANGER.value)  # one of `zones.Judged`

    class Meta:
        ordering = ("log", "line")

    def __str__(self) -> str:
        return f"line {self.line}"


class PrefillBucket(models.Model):
    """The 5th percentile of prefill seconds of the log's requests of ``low`` (inclusive) to ``high`` tokens;
    null below 59 requests."""

    log = models.ForeignKey(RequestLog, on_delete=models.CASCADE, related_name="prefill")
    low = models.BigIntegerField()
    high = models.BigIntegerField()
    n = models.BigIntegerField()
    p5 = models.FloatField(null=True)

    class Meta:
        ordering = ("low",)
        constraints = (
            models.UniqueConstraint(fields=("log", "low"), name="inquiries_prefill_once_a_bucket"),
        )

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"


class ImportState(models.TextChoices):
    RECEIVING = "receiving"
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


LIVE = (ImportState.RECEIVING, ImportState.QUEUED, ImportState.RUNNING)


class LogImportQuerySet(OfDeployment["LogImport"]):
    def of(self, deployment: Deployment) -> Self:
        """Newest first."""
        return self.filter(deployment=deployment).order_by("-id")


class LogImport(models.Model):
    """The work of importing an uploaded log. While it is live its file is in `LogPart`, sealed; only a finished one
    has a ``log``. ``token`` names the worker that reads it, ``seen_at`` is the last sign of life of whoever receives
    or reads it; until it is received, ``size`` is what has come."""

    deployment = models.ForeignKey(Deployment, on_delete=models.PROTECT, related_name="log_imports")
    name = models.CharField(max_length=200)
    size = models.BigIntegerField(help_text="bytes")
    since = models.DateTimeField()
    until = models.DateTimeField()
    zones = models.JSONField(default=list)
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    requested_at = models.DateTimeField(default=clock.now)

    state = models.CharField(max_length=10, choices=ImportState.choices, default=ImportState.QUEUED)
    token = models.UUIDField(null=True)
    rung_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    rows_read = models.BigIntegerField(default=0)
    bytes_read = models.BigIntegerField(default=0)
    problem_count = models.BigIntegerField(default=0)
    sentence = models.CharField(max_length=400, blank=True)  # why it failed
    log = models.OneToOneField(RequestLog, null=True, on_delete=models.SET_NULL, related_name="imported")

    objects = LogImportQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("id",), name="inquiries_import_live", condition=Q(state__in=LIVE)),)

    def __str__(self) -> str:
        return self.name

    @property
    def live(self) -> bool:
        return self.state in LIVE


class LogPart(models.Model):
    """A piece of an uploaded log, sealed: it names tenants. Deleted as soon as its import ends."""

    work = models.ForeignKey(LogImport, on_delete=models.CASCADE, related_name="parts")
    number = models.IntegerField()  # from 0
    sealed = SealedField(row=("work_id", "number"))

    class Meta:
        ordering = ("number",)
        constraints = (
            models.UniqueConstraint(fields=("work", "number"), name="inquiries_part_once_an_import"),
        )

    def __str__(self) -> str:
        return f"part {self.number}"
