"""What people answer for: attestations and waivers. None of these rows is edited in place: a change closes one
and opens another.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Self, TypeVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from kvaudit.server import clock
from kvaudit.server.accounts.access import access_of
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.audits.models import Evidence
from kvaudit.server.audits.state.bulk_reads import among
from kvaudit.server.fleet.intervals import Interval, not_backwards
from kvaudit.server.fleet.models import Deployment

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser


Scoped = TypeVar("Scoped", bound=models.Model, covariant=True)


class ScopedQuerySet(models.QuerySet[Scoped]):
    """Rows of one deployment, or of all deployments of a team."""

    def visible_to(self, user: User | AnonymousUser) -> Self:
        """Rows whose deployment or team the user sees."""
        if access_of(user).everywhere("view"):
            return self.all()
        return self.filter(
            Q(deployment__in=Deployment.objects.visible_to(user)) | Q(team__in=Team.objects.visible_to(user))
        )

    def concerning(self, deployments: Iterable[int], teams: Iterable[int]) -> Self:
        return self.filter(among("deployment_id", deployments) | among("team_id", teams))

    def of(self, deployment: Deployment, item: str) -> Self:
        """Everything ever said about this item of this deployment, its team's included; newest first."""
        return self.filter(Q(deployment=deployment) | Q(team=deployment.team_id), item=item)

    def in_force(self, moment: datetime | None = None) -> Self:
        """Those that held at a moment (default: now): begun, not closed, not expired."""
        when = clock.now() if moment is None else moment
        return self.in_force_between(when, when)

    def in_force_between(self, since: datetime, until: datetime) -> Self:
        """Those that held at some moment of a span, both ends included."""
        open_then = Q(valid_to=None) | Q(valid_to__gt=since)
        return self.filter(open_then, valid_from__lte=until, expires_at__gt=since)

    def ending(self, now: datetime, before: datetime) -> Self:
        """In force now and over before ``before``; soonest first."""
        return self.in_force(now).filter(expires_at__lte=before).order_by("expires_at", "pk")


class AttestationQuerySet(ScopedQuerySet["Attestation"]):
    pass


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


class WaiverQuerySet(ScopedQuerySet["Waiver"]):
    def pending(self, moment: datetime | None = None) -> Self:
        """Asked for, not decided, and not over before it began."""
        when = clock.now() if moment is None else moment
        return self.filter(decision="pending", expires_at__gt=when)

    def to_decide_by(self, user: User, moment: datetime | None = None) -> Self:
        """Those that wait for a second person whom this user may be."""
        mine = Q(deployment__in=Deployment.objects.where_can(user, "approve"))
        mine |= Q(team__in=Team.objects.where_can(user, "approve"))
        return self.pending(moment).filter(mine).exclude(requester=user)


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
