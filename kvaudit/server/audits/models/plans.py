"""Schedules: what is audited when."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, Self

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from kvaudit.server import clock
from kvaudit.server.accounts.models import User
from kvaudit.server.fleet.models import Deployment

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser


class Kind(models.TextChoices):
    PASSIVE = "passive"  # reads allow-listed paths; no load
    ACTIVE = "active"  # sends prompts; one set per deployment at a time


class Where(models.TextChoices):
    """What the replicas that a run asks serve meanwhile (`kvaudit.auditor.checks.serving.Where`)."""

    PRODUCTION = "production"
    NEWCOMER = "newcomer", "Newcomers: started, take no traffic yet"
    DRAINED = "drained", "Drained: taken out of traffic"


class Planned(Protocol):
    """A deployment as far as plans look at it; instances of the model are dear where there are thousands."""

    @property
    def pk(self) -> int: ...
    @property
    def team_id(self) -> int: ...
    @property
    def engine(self) -> str: ...


class PlanQuerySet(models.QuerySet["Plan"]):
    def current(self) -> Self:
        """The open version of every plan, enabled or not."""
        return self.filter(valid_to=None)

    def at(self, moment: datetime) -> Self:
        """The versions that held at a moment."""
        return self.filter(Q(valid_to=None) | Q(valid_to__gt=moment), valid_from__lte=moment)

    def enabled(self) -> Self:
        return self.current().filter(enabled=True)

    def visible_to(self, user: User | AnonymousUser) -> Self:
        """Plans that select at least one deployment the user sees."""
        seen = Deployment.objects.visible_to(user)
        team, engine = models.OuterRef("team"), models.OuterRef("engine")
        return self.filter(
            Q(pk__in=self._explicitly_for(seen))
            | Q(models.Exists(seen.filter(team=team)), team__isnull=False, engine="")
            | Q(models.Exists(seen.filter(engine=engine)), ~Q(engine=""), team=None)
            | Q(models.Exists(seen.filter(team=team, engine=engine)), ~Q(engine=""), team__isnull=False)
        )

    def for_deployment(self, deployment: Deployment) -> Self:
        """Open versions that select this deployment, explicitly or by team and engine."""
        selects: Any = Q(team=None) | Q(team=deployment.team_id)
        selects &= Q(engine="") | Q(engine=deployment.engine)
        selects &= ~Q(team=None, engine="")
        return self.current().filter(selects | Q(pk__in=self._explicitly_for([deployment])))

    def _explicitly_for(self, deployments: Any) -> Any:
        through = self.model.deployments.through
        return through._default_manager.filter(deployment__in=deployments).values("plan_id")


class Plan(models.Model):
    """One version of a schedule. A change closes this row (``valid_to``) and opens the next version
    under the same ``series``; only ``next_due`` and the missed-slot cursor move, and those belong to
    the dispatcher.

    Selects its explicit deployments and, where ``team`` or ``engine`` is set, every deployment that
    matches both. Exactly one of ``cron`` (read in ``zone``) and ``interval`` (seconds) is set.
    """

    series = models.UUIDField(default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    checks = ArrayField(models.CharField(max_length=40))
    where = models.CharField(
        max_length=10, choices=Where.choices, default=Where.PRODUCTION, db_default=Where.PRODUCTION
    )
    deployments = models.ManyToManyField("fleet.Deployment", related_name="plans", blank=True)
    team = models.ForeignKey(
        "accounts.Team", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    engine = models.CharField(max_length=20, blank=True)
    cron = models.CharField(max_length=120, blank=True)
    zone = models.CharField(max_length=60, default="UTC")
    interval = models.PositiveIntegerField(null=True, blank=True, help_text="seconds")
    anchor = models.DateTimeField(default=clock.now)  # a slot of the interval, kept across versions
    jitter = models.PositiveIntegerField(default=0, help_text="seconds")
    windows = models.JSONField(default=list, blank=True)
    budget_seconds = models.PositiveIntegerField(null=True, blank=True)
    budget_tokens = models.BigIntegerField(null=True, blank=True)
    enabled = models.BooleanField(default=True)

    valid_from = models.DateTimeField(default=clock.now)
    valid_to = models.DateTimeField(null=True, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    next_due = models.DateTimeField(null=True, blank=True)
    # Slots from the first (inclusive) to the second (exclusive) were missed while nothing dispatched
    # and are still to be written.
    missed_from = models.DateTimeField(null=True, blank=True)
    missed_before = models.DateTimeField(null=True, blank=True)

    objects = PlanQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["series"], condition=Q(valid_to=None), name="audits_plan_one_open_version"
            ),
            models.CheckConstraint(
                condition=(Q(cron="", interval__gt=0) | (~Q(cron="") & Q(interval=None))),
                name="audits_plan_cron_or_interval",
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_due"], name="audits_plan_due", condition=Q(enabled=True, valid_to=None)
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def matches(self, deployment: Planned) -> bool:
        """Whether team and engine select the deployment (its *declared* engine); the explicit list
        is not looked at."""
        if self.team_id is None and not self.engine:
            return False
        right_team = self.team_id is None or self.team_id == deployment.team_id
        return right_team and self.engine in ("", deployment.engine)
