"""Runs and their results. The evidence they cite is in `evidence`, state as intervals in `state`.

Built for ten million results: bigint keys that grow with time (keyset pages walk them) and partial indices for
what is live, so that no page scans history.
"""

from __future__ import annotations

from typing import Self

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from kvaudit.server import clock
from kvaudit.server.audits.models.plans import Kind, Plan, Where
from kvaudit.server.audits.models.state import VERDICTS
from kvaudit.server.fleet.models import Deployment, OfDeployment


class Trigger(models.TextChoices):
    SCHEDULE = "schedule"
    MANUAL = "manual"  # "Run passive checks"
    DRIFT = "drift"  # a capacity change was seen
    RETRY = "retry"  # an inconclusive is re-run once


class RunState(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"  # has a verdict
    CANCELLED = "cancelled"  # has a verdict, never pass
    MISSED = "missed"  # never ran: no verdict, counts as missing


class RunQuerySet(OfDeployment["Run"]):
    def of(self, deployment: Deployment) -> Self:
        return self.filter(deployment=deployment)

    def ended(self) -> Self:
        return self.exclude(state__in=("queued", "running"))

    def pending(self) -> Self:
        """Queued or running: what a page polls."""
        return self.filter(state__in=("queued", "running"))

    def with_results(self) -> Self:
        """Results (every attempt) and kept evidence prefetched, plan, deployment and actor joined."""
        return self.select_related("plan", "deployment__team", "actor", "retry_of").prefetch_related(
            "results", "kept_evidence"
        )


class Run(models.Model):
    """One audit of one deployment. The row is the truth; a message of the broker only wakes a worker.

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
    where = models.CharField(
        max_length=10, choices=Where.choices, default=Where.PRODUCTION, db_default=Where.PRODUCTION
    )
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
    # When and how often it was sent to workers (`execution.enqueue`); the columns keep their first names.
    rung_at = models.DateTimeField(null=True, blank=True)
    rings = models.PositiveSmallIntegerField(default=0)
    # Claims so far, and the token that the latest one drew: what `execution.claims.fence` compares.
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


class ResultQuerySet(OfDeployment["Result"]):
    pass


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
