"""A team's own items, attestations, waivers, and the days' counts that the trend is drawn from.

None of these rows is edited in place: a change closes one and opens another. What they come to is
computed when read (`querysets.AssessedQuerySet.standings`).
"""

from __future__ import annotations

import uuid
from datetime import datetime

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from kvaudit.server import clock
from kvaudit.server.accounts.models import Team
from kvaudit.server.audits.models import Evidence
from kvaudit.server.checklists.evaluation import Status
from kvaudit.server.checklists.items import DISAGGREGATED, UNIFIED, Item, Standard
from kvaudit.server.checklists.querysets import (
    AssessedQuerySet,
    AttestationQuerySet,
    DailyCountQuerySet,
    OwnItemQuerySet,
    WaiverQuerySet,
)
from kvaudit.server.fleet.intervals import Interval, not_backwards
from kvaudit.server.fleet.models import Deployment

__all__ = ("Assessed", "Attestation", "DailyCount", "OwnItem", "Waiver")


class Assessed(Deployment):
    """A deployment as the checklists see it: the same row, with `standings` to ask."""

    objects = AssessedQuerySet.as_manager()  # type: ignore[misc]

    class Meta:
        proxy = True
        ordering = ("slug",)


class OwnItem(Interval):
    """One version of an item that a team holds its own deployments to, beside the shipped ones.

    ``series`` names the item through its versions; without ``checks`` it can only be attested.
    """

    series = models.UUIDField(default=uuid.uuid4, editable=False)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="own_items")
    key = models.CharField(max_length=12)
    title = models.CharField(max_length=120)
    rule = models.TextField(max_length=2_000)
    checks = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    attestable = models.BooleanField(default=True)
    applies_to = models.CharField(
        max_length=13, blank=True, choices=[(DISAGGREGATED, "disaggregated"), (UNIFIED, "unified")]
    )
    remedy = models.TextField(max_length=2_000, blank=True)
    standard = models.CharField(max_length=100, blank=True)
    standard_version = models.CharField(max_length=40, blank=True)
    requirement = models.CharField(max_length=100, blank=True)
    requirement_text = models.TextField(max_length=4_000, blank=True)
    version = models.PositiveIntegerField(default=1)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )

    objects = OwnItemQuerySet.as_manager()

    class Meta:
        ordering = ("team", "key", "valid_from")
        constraints = (
            models.UniqueConstraint(
                fields=("team", "key"), condition=Q(valid_to=None), name="checklists_item_one_open_key"
            ),
            models.UniqueConstraint(
                fields=("series",), condition=Q(valid_to=None), name="checklists_item_one_open_version"
            ),
            not_backwards("checklists_item_interval"),
        )

    def __str__(self) -> str:
        return f"{self.key} {self.title}"

    def as_item(self) -> Item:
        """The same shape as a shipped item."""
        cited = Standard(self.standard, self.standard_version, self.requirement, self.requirement_text)
        return Item(
            key=self.key,
            title=self.title,
            rule=self.rule,
            checks=tuple(self.checks),
            remedy=self.remedy,
            attestable=self.attestable,
            applies_to=self.applies_to,
            standard=cited if self.standard else None,
            team_id=self.team_id,
            checklist="own",
            version=self.version,
        )


class Attestation(Interval):
    """Somebody's statement that an item holds, with evidence (a stored file, a link) and an expiry.

    For one deployment or for all of a team. It holds while open and not expired; renewing it closes
    this row and opens the next.
    """

    deployment = models.ForeignKey(
        Deployment, null=True, blank=True, on_delete=models.PROTECT, related_name="attestations"
    )
    team = models.ForeignKey(
        Team, null=True, blank=True, on_delete=models.PROTECT, related_name="attestations"
    )
    item = models.CharField(max_length=12)
    statement = models.TextField(max_length=4_000)
    link = models.URLField(max_length=500, blank=True)
    evidence = models.ForeignKey(
        Evidence, null=True, blank=True, on_delete=models.PROTECT, related_name="attestations"
    )
    evidence_name = models.CharField(max_length=200, blank=True)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    expires_at = models.DateTimeField()
    ended_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    end_reason = models.CharField(max_length=500, blank=True)
    warned_at = models.DateTimeField(null=True, blank=True)

    objects = AttestationQuerySet.as_manager()

    class Meta:
        ordering = ("-valid_from", "-pk")
        constraints = (
            models.CheckConstraint(
                condition=Q(deployment=None) ^ Q(team=None), name="checklists_attestation_one_scope"
            ),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("valid_from")), name="checklists_attestation_expires_later"
            ),
            models.CheckConstraint(
                condition=~Q(link="") | Q(evidence__isnull=False), name="checklists_attestation_has_evidence"
            ),
            models.UniqueConstraint(
                fields=("deployment", "team", "item"),
                condition=Q(valid_to=None),
                nulls_distinct=False,
                name="checklists_attestation_one_open",
            ),
            not_backwards("checklists_attestation_interval"),
        )

    def __str__(self) -> str:
        return f"attestation of {self.item} by {self.author}"

    def in_force(self, moment: datetime | None = None) -> bool:
        when = clock.now() if moment is None else moment
        held = self.valid_from <= when and (self.valid_to is None or self.valid_to > when)
        return held and self.expires_at > when


class Decision(models.TextChoices):
    PENDING = "pending", "Waiting for an approver"
    APPROVED = "approved", "Approved"
    REFUSED = "refused", "Refused"
    WITHDRAWN = "withdrawn", "Withdrawn"


class Waiver(models.Model):
    """Leave to not comply with one item until ``expires_at``, asked for by one person and given by
    another. ``valid_from`` is null until it was approved; it holds while open and not expired."""

    deployment = models.ForeignKey(
        Deployment, null=True, blank=True, on_delete=models.PROTECT, related_name="waivers"
    )
    team = models.ForeignKey(Team, null=True, blank=True, on_delete=models.PROTECT, related_name="waivers")
    item = models.CharField(max_length=12)
    reason = models.TextField(max_length=4_000)
    requester = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    requested_at = models.DateTimeField(default=clock.now)
    expires_at = models.DateTimeField()
    decision = models.CharField(max_length=10, choices=Decision.choices, default=Decision.PENDING)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    decided_at = models.DateTimeField(null=True, blank=True)
    decision_note = models.CharField(max_length=500, blank=True)
    valid_from = models.DateTimeField(null=True, blank=True)
    valid_to = models.DateTimeField(null=True, blank=True)
    ended_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    end_reason = models.CharField(max_length=500, blank=True)
    warned_at = models.DateTimeField(null=True, blank=True)

    objects = WaiverQuerySet.as_manager()

    class Meta:
        ordering = ("-requested_at", "-pk")
        constraints = (
            models.CheckConstraint(
                condition=Q(deployment=None) ^ Q(team=None), name="checklists_waiver_one_scope"
            ),
            models.CheckConstraint(
                condition=Q(expires_at__gt=F("requested_at")), name="checklists_waiver_expires_later"
            ),
            # Nobody waives for themselves, whatever their role.
            models.CheckConstraint(
                condition=~Q(decision="approved")
                | (Q(decided_by__isnull=False) & ~Q(decided_by=F("requester")) & Q(valid_from__isnull=False)),
                name="checklists_waiver_approved_by_another",
            ),
            models.CheckConstraint(
                condition=Q(decision="approved") | Q(valid_from=None),
                name="checklists_waiver_only_approved_holds",
            ),
            models.UniqueConstraint(
                fields=("deployment", "team", "item"),
                condition=Q(decision="approved", valid_to=None),
                nulls_distinct=False,
                name="checklists_waiver_one_open",
            ),
            not_backwards("checklists_waiver_interval"),
        )

    def __str__(self) -> str:
        return f"waiver of {self.item}"

    def in_force(self, moment: datetime | None = None) -> bool:
        when = clock.now() if moment is None else moment
        if self.valid_from is None or self.valid_from > when:
            return False
        return (self.valid_to is None or self.valid_to > when) and self.expires_at > when

    def state(self, moment: datetime | None = None) -> str:
        """``pending``, ``lapsed`` (nobody decided before it would have ended), ``refused``,
        ``withdrawn``, ``in force``, ``ended`` or ``expired``."""
        when = clock.now() if moment is None else moment
        if self.decision == Decision.PENDING:
            return "pending" if self.expires_at > when else "lapsed"
        if self.decision != Decision.APPROVED:
            return str(self.decision)
        if self.in_force(when):
            return "in force"
        return "ended" if self.valid_to is not None and self.valid_to < self.expires_at else "expired"


class DailyCount(models.Model):
    """How many cells of a team's item stood how at the end of a UTC day. Derived: `trends.rebuild`
    makes the rows again out of the intervals, and gets the same."""

    day = models.DateField()
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="+", db_index=False)
    item = models.CharField(max_length=12)
    status = models.CharField(max_length=14, choices=[(each.value, each.value) for each in Status])
    count = models.PositiveIntegerField()

    objects = DailyCountQuerySet.as_manager()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("day", "team", "item", "status"), name="checklists_daily_once"),
        )

    def __str__(self) -> str:
        return f"{self.day} {self.item} {self.status}: {self.count}"
