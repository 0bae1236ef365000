"""State as intervals, what changed it, and what is overdue."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from django.db import models
from django.db.models import Q

from kvaudit.auditor import checks
from kvaudit.auditor.stats.accumulated_said import BOUND_SAID
from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.fleet.models import Deployment, OfDeployment

VERDICTS = [(verdict.value, verdict.value) for verdict in Verdict]


class CheckStateQuerySet(OfDeployment["CheckState"]):
    def as_of(self, moment: datetime | None = None) -> Self:
        """What held at a moment (default: now), with ``expired`` evaluated for that moment.

        Pages, API and exports all ask here, for now and for the past. A check without a row had
        never a result by then: it counts as missing.
        """
        when = clock.now() if moment is None else moment
        held = self.filter(closed_at=None) if moment is None else self.between(moment, moment)
        expired: Any = Q(expires_at__lte=when)
        return held.annotate(
            expired=models.Case(
                models.When(expired, then=True), default=False, output_field=models.BooleanField()
            )
        )

    def between(self, since: datetime, until: datetime) -> Self:
        """What held at some moment of a span, both ends included."""
        return self.filter(Q(closed_at=None) | Q(closed_at__gt=since), since__lte=until)

    def current(self) -> Self:
        """What holds now: one row per deployment, node and check, by the partial index alone."""
        return self.as_of()

    def unrefuted(self, moment: datetime | None = None) -> Self:
        """Intervals of a moment that learnt nothing (*inconclusive*, *error*) after a *fail*: a test that could
        not be done takes nothing back. ``failed_severity`` and ``failed_summary`` are those of that fail."""
        concluded = self._concluded_before()
        rows = self.as_of(moment).filter(_learnt_nothing())
        found = {
            f"failed_{name or 'verdict'}": models.Subquery(concluded.values(name or "verdict")[:1])
            for name in ("", "severity", "summary")
        }
        return rows.annotate(**found).filter(failed_verdict="fail")

    def recalling(self) -> Self:
        """``recalled`` is the severity of the fail that an interval is `unrefuted` by, NULL where there is none:
        for who reads the others as well."""
        failed = models.Case(models.When(verdict="fail", then="severity"))
        before = self._concluded_before().annotate(failed=failed).values("failed")[:1]
        return self.annotate(
            recalled=models.Case(
                models.When(_learnt_nothing(), then=models.Subquery(before)), output_field=models.CharField()
            )
        )

    def bounding(self) -> Self:
        """``bound`` is the share of requests that the pass of a check whose evidence accumulates does not exclude, as
        its sentence says it ("12%"); NULL for all others."""
        said = models.Func(models.F("summary"), models.Value(BOUND_SAID), function="substring")
        passed = models.When(verdict="pass", check_id__in=checks.where("accumulates"), then=said)
        return self.annotate(bound=models.Case(passed, output_field=models.CharField()))

    def concluded(self) -> Self:
        """Intervals of whole deployments that came to know something, newest first; not those that a fail
        heard of late has ended where they began."""
        lasted = Q(closed_at=None) | Q(closed_at__gt=models.F("since"))
        return self.filter(lasted, node=None, verdict__in=("pass", "fail")).order_by("-since", "-id")

    def _concluded_before(self) -> models.QuerySet[CheckState]:
        """Earlier intervals of the same check that came to know something, newest first."""
        rows: CheckStateQuerySet = self.model._default_manager.all()
        return rows.concluded().filter(
            deployment=models.OuterRef("deployment"),
            check_id=models.OuterRef("check_id"),
            since__lt=models.OuterRef("since"),
        )

    def history(self, deployment: Deployment, check_id: str) -> Self:
        """Every interval of one check, newest first."""
        return self.filter(deployment=deployment, check_id=check_id).order_by("-since", "-id")

    def to_note(self, now: datetime) -> Self:
        """Open intervals that have expired and whose expiry has not become a StateChange yet."""
        return self.filter(closed_at=None, expiry_noted=False, expires_at__lte=now)


def _learnt_nothing() -> Q:
    return Q(node=None, verdict__in=("inconclusive", "error"))


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


class StateChangeQuerySet(OfDeployment["StateChange"]):
    def after(self, key: int) -> Self:
        """Oldest first, above ``key``: how an upper app consumes changes."""
        return self.filter(id__gt=key).order_by("id")


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
        FIXED = "fixed"  # somebody recorded the fix of what ``check_id`` had found

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


class OverdueQuerySet(OfDeployment["Overdue"]):
    def open(self) -> Self:
        return self.filter(until=None)

    def at(self, moment: datetime) -> Self:
        """Those that held at a moment."""
        return self.between(moment, moment)

    def between(self, since: datetime, until: datetime) -> Self:
        """Those that held at some moment of a span, both ends included."""
        return self.filter(Q(until=None) | Q(until__gt=since), since__lte=until)


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
