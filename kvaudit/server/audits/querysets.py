"""Reads of audits, and which rows a user may see.

Lists of history are walked by key (`before`), never counted.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from django.db import models
from django.db.models import Q

from kvaudit.server import clock
from kvaudit.server.fleet.querysets import OfDeployment

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser

    from kvaudit.server.accounts.models import User
    from kvaudit.server.audits.models import (  # noqa: F401
        CheckState,
        Overdue,
        Plan,
        Result,
        Run,
        StateChange,
    )
    from kvaudit.server.fleet.models import Deployment


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
        from kvaudit.server.fleet.models import Deployment

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


class ResultQuerySet(OfDeployment["Result"]):
    pass


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


class StateChangeQuerySet(OfDeployment["StateChange"]):
    def after(self, key: int) -> Self:
        """Oldest first, above ``key``: how an upper app consumes changes."""
        return self.filter(id__gt=key).order_by("id")


class OverdueQuerySet(OfDeployment["Overdue"]):
    def open(self) -> Self:
        return self.filter(until=None)

    def at(self, moment: datetime) -> Self:
        """Those that held at a moment."""
        return self.between(moment, moment)

    def between(self, since: datetime, until: datetime) -> Self:
        """Those that held at some moment of a span, both ends included."""
        return self.filter(Q(until=None) | Q(until__gt=since), since__lte=until)
