"""State as intervals, what changed it, and what is overdue. Models."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.querysets import CheckStateQuerySet, OverdueQuerySet, StateChangeQuerySet

VERDICTS = [(verdict.value, verdict.value) for verdict in Verdict]


class CheckState(models.Model):
    """One interval during which a check said the same about a deployment (or one of its nodes).

    Open while ``closed_at`` is null. An open interval whose ``expires_at`` has passed is what was
    last known and counts as expired: evaluated when read, never stamped. A capacity change moves
    ``expires_at`` to its own moment and names itself in ``expired_by``. The next result closes the
    interval, even when it says the same again.
    """

    deployment = models.ForeignKey(
        "fleet.Deployment", on_delete=models.CASCADE, related_name="check_states", db_index=False
    )
    node = models.ForeignKey("fleet.Node", null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    check_id = models.CharField(max_length=40)
    verdict = models.CharField(max_length=12, choices=VERDICTS)
    warn = models.BooleanField(default=False)
    severity = models.CharField(max_length=10, blank=True)
    summary = models.TextField(blank=True)
    since = models.DateTimeField()
    last_confirmed = models.DateTimeField()
    expires_at = models.DateTimeField()
    expired_by = models.CharField(max_length=40, blank=True)
    expiry_noted = models.BooleanField(default=False)  # the StateChange "expired" has been written
    closed_at = models.DateTimeField(null=True, blank=True)
    interval = models.PositiveIntegerField(default=0, help_text="seconds between scheduled runs, 0 = none")
    fingerprint = models.CharField(max_length=64, blank=True)
    # Prompt tokens [low, high) that a fail of `pool` endangered. Pools are drawn anew at every start, by a little, so
    # that one fail that goes on has had several zones: these hold the lengths of all.
    zone_low = models.BigIntegerField(null=True, blank=True)
    zone_high = models.BigIntegerField(null=True, blank=True)
    run = models.ForeignKey("audits.Run", on_delete=models.PROTECT, related_name="+")
    result = models.ForeignKey("audits.Result", on_delete=models.PROTECT, related_name="+")

    objects = CheckStateQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["deployment", "node", "check_id"],
                condition=Q(closed_at=None),
                nulls_distinct=False,
                name="audits_state_one_open",
            ),
            models.CheckConstraint(
                condition=Q(last_confirmed__gte=models.F("since")), name="audits_state_confirmed_after_since"
            ),
            models.CheckConstraint(
                condition=Q(zone_low=None, zone_high=None) | Q(zone_high__gt=models.F("zone_low")),
                name="audits_state_zone_has_lengths",
            ),
        ]
        indexes = [
            models.Index(fields=["deployment", "check_id", "since"], name="audits_state_history"),
            # What held at a past moment was closed after it: of a recent one, few rows.
            models.Index(fields=["closed_at"], name="audits_state_closed"),
            models.Index(
                fields=["expires_at"],
                name="audits_state_to_note",
                condition=Q(closed_at=None, expiry_noted=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.check_id}: {self.verdict}"


class StateChange(models.Model):
    """Something that changed; what timeline, incidents and notifications are made of.

    Upper apps read these rows by id and keep their own cursor; nothing here calls them.
    """

    class What(models.TextChoices):
        VERDICT = "verdict"
        CAPACITY = "capacity"  # significant change of a fingerprint; ``detail`` holds the diff
        EXPIRED = "expired"
        OVERDUE = "overdue"
        BACK = "back on schedule"
        RUN = "run"  # a run was lost or cancelled
        SUSPENDED = "suspended"  # active checks, after a prompt that stopped the server from answering
        RESUMED = "resumed"

    at = models.DateTimeField()
    deployment = models.ForeignKey(
        "fleet.Deployment", on_delete=models.CASCADE, related_name="state_changes", db_index=False
    )
    node = models.ForeignKey("fleet.Node", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    plan = models.ForeignKey(
        "audits.Plan", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    run = models.ForeignKey("audits.Run", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    # At most one row per change of a fingerprint: whoever sees it first handles it.
    fingerprint_change = models.OneToOneField(
        "fleet.FingerprintChange",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="state_change",
    )
    what = models.CharField(max_length=20, choices=What.choices)
    check_id = models.CharField(max_length=40, blank=True)
    before = models.CharField(max_length=20, blank=True)
    after = models.CharField(max_length=20, blank=True)
    summary = models.TextField()
    detail = models.JSONField(default=dict, blank=True)

    objects = StateChangeQuerySet.as_manager()

    class Meta:
        # By moment: whoever shows some of a deployment's changes shows the newest, or those of a window.
        indexes = [models.Index(fields=["deployment", "-at", "-id"], name="audits_change_when")]

    def __str__(self) -> str:
        return self.summary


class Overdue(models.Model):
    """An interval during which a plan's audits of a deployment did not happen when they were due."""

    plan = models.ForeignKey("audits.Plan", on_delete=models.CASCADE, related_name="+")
    deployment = models.ForeignKey("fleet.Deployment", on_delete=models.CASCADE, related_name="overdue")
    since = models.DateTimeField()
    until = models.DateTimeField(null=True, blank=True)

    objects = OverdueQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["plan", "deployment"], condition=Q(until=None), name="audits_overdue_one_open"
            ),
        ]

    def __str__(self) -> str:
        return f"overdue since {self.since:%Y-%m-%d %H:%M}"
