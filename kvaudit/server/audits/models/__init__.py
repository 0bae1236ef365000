"""Plan -> Run -> Result. The evidence they cite is in `kept`, state as intervals in `standing`.

Built for ten million results: bigint keys that grow with time (keyset pages walk them), partial
indices for what is live, and state in rows of its own, so that no page scans history.
"""

from __future__ import annotations

import uuid
from typing import Protocol

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from kvaudit.server import clock
from kvaudit.server.audits.execution.worker_clocks import WorkerClock
from kvaudit.server.audits.models.evidence import Evidence, Planting, PrunedEvidence, RunEvidence
from kvaudit.server.audits.models.state import VERDICTS, CheckState, Overdue, StateChange
from kvaudit.server.audits.querysets import PlanQuerySet, ResultQuerySet, RunQuerySet

__all__ = (
    "VERDICTS",
    "CheckState",
    "Evidence",
    "Kind",
    "Overdue",
    "Plan",
    "Planting",
    "PrunedEvidence",
    "Result",
    "Run",
    "RunEvidence",
    "RunState",
    "StateChange",
    "Trigger",
    "WorkerClock",
)


class Kind(models.TextChoices):
    PASSIVE = "passive"  # reads allow-listed paths; no load
    ACTIVE = "active"  # sends prompts; one set per deployment at a time


class Trigger(models.TextChoices):
    SCHEDULE = "schedule"
    MANUAL = "manual"  # "Audit now"
    DRIFT = "drift"  # a capacity change was seen
    RETRY = "retry"  # an inconclusive is re-run once


class RunState(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"  # has a verdict
    CANCELLED = "cancelled"  # has a verdict, never pass
    MISSED = "missed"  # never ran: no verdict, counts as missing


class Planned(Protocol):
    """A deployment as far as plans look at it; instances of the model are dear where there are thousands."""

    @property
    def pk(self) -> int: ...
    @property
    def team_id(self) -> int: ...
    @property
    def engine(self) -> str: ...


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


class Run(models.Model):
    """One audit of one deployment: the truth of which the broker only rings the bell.

    A scheduled run is identified by (plan, deployment, slot); slot is the scheduled UTC instant
    before jitter. Every other trigger has no slot. ``slots`` is above 1 only for the one missed row
    that stands for slots older than the horizon of `dispatching`.
    """

    deployment = models.ForeignKey(
        "fleet.Deployment", on_delete=models.PROTECT, related_name="runs", db_index=False
    )
    plan = models.ForeignKey(
        Plan, null=True, blank=True, on_delete=models.PROTECT, related_name="runs", db_index=False
    )
    kind = models.CharField(max_length=8, choices=Kind.choices)
    trigger = models.CharField(max_length=8, choices=Trigger.choices)
    checks = ArrayField(models.CharField(max_length=40))
    slot = models.DateTimeField(null=True, blank=True)
    slots = models.PositiveIntegerField(default=1)
    retry_of = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="retries"
    )
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    state = models.CharField(max_length=9, choices=RunState.choices, default=RunState.QUEUED)
    # Null until it ended; "" would be a fifth verdict.
    verdict = models.CharField(max_length=12, choices=VERDICTS, null=True, blank=True)  # noqa: DJ001
    warn = models.BooleanField(default=False)
    summary = models.TextField(blank=True)
    fingerprint = models.CharField(max_length=64, blank=True)
    tokens_spent = models.BigIntegerField(default=0)
    # Of active runs: what every draw came from, and lengths of an earlier run that are asked again.
    seed = models.BigIntegerField(null=True, blank=True)
    replayed_lengths = ArrayField(models.BigIntegerField(), default=list, blank=True)
    progress = models.JSONField(default=dict, blank=True)

    not_before = models.DateTimeField(default=clock.now)
    expires_at = models.DateTimeField()
    rung_at = models.DateTimeField(null=True, blank=True)
    rings = models.PositiveSmallIntegerField(default=0)
    attempt = models.PositiveSmallIntegerField(default=0)
    lease_token = models.UUIDField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=clock.now)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["plan", "deployment", "slot"], name="audits_run_one_per_slot"),
            models.UniqueConstraint(
                fields=["deployment"],
                condition=Q(kind="active", state="running"),
                name="audits_run_one_active_set",
            ),
            # Only a run that ended has a verdict, and one that ended always has one.
            models.CheckConstraint(
                condition=(
                    Q(state__in=["finished", "cancelled"], verdict__isnull=False)
                    | Q(state__in=["queued", "running", "missed"], verdict=None)
                ),
                name="audits_run_verdict_when_ended",
            ),
            models.CheckConstraint(
                condition=~Q(state="cancelled", verdict="pass"), name="audits_run_cancelled_never_pass"
            ),
        ]
        indexes = [
            models.Index(fields=["deployment", "-id"], name="audits_run_of_deployment"),
            models.Index(fields=["not_before"], name="audits_run_queued", condition=Q(state="queued")),
            models.Index(fields=["lease_until"], name="audits_run_running", condition=Q(state="running")),
            # What a deployment was sent within a day.
            models.Index(
                fields=["deployment", "started_at"], name="audits_run_prompting", condition=Q(kind="active")
            ),
        ]

    def __str__(self) -> str:
        return f"run {self.pk}"

    @property
    def ended(self) -> bool:
        return self.state not in (RunState.QUEUED, RunState.RUNNING)

    @property
    def wedged(self) -> bool:
        """Whether a prompt of this run stopped, or may have stopped, the server from answering."""
        return self.kind == Kind.ACTIVE and self.results.filter(measures__has_key="wedged").exists()


class Result(models.Model):
    """What one check concluded in one attempt of a run. Never updated.

    ``evidence`` lists ``{kind, sha256, source}`` of everything that was looked at, kept or not;
    what was kept hangs on the run (`RunEvidence`).
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="results", db_index=False)
    deployment = models.ForeignKey(
        "fleet.Deployment", on_delete=models.PROTECT, related_name="+", db_index=False
    )
    attempt = models.PositiveSmallIntegerField()
    check_id = models.CharField(max_length=40)
    verdict = models.CharField(max_length=12, choices=VERDICTS)
    warn = models.BooleanField(default=False)
    severity = models.CharField(max_length=10, blank=True)
    summary = models.TextField()
    measures = models.JSONField(default=dict)
    next_step = models.TextField(blank=True)
    does_not_prove = models.TextField(blank=True)
    evidence = models.JSONField(default=list)
    observed_at = models.DateTimeField()

    objects = ResultQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["run", "attempt", "check_id"], name="audits_result_one_per_attempt"
            ),
        ]
        # With what history filters a deployment by: its rows lie scattered over all of history.
        indexes = [
            models.Index(
                fields=["deployment", "check_id", "-id"],
                include=["verdict", "run"],
                name="audits_result_said",
            ),
            # One in thirty, and what people look for.
            models.Index(
                fields=["deployment", "verdict", "-id"],
                include=["run"],
                condition=~Q(verdict="pass"),
                name="audits_result_not_passed",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.check_id}: {self.verdict}"
