"""Notes audits that did not happen when they were due: opened once, told once, closed by the next finished run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import connection
from django.db.models import Q
from django.db.models.functions import Now

from kvaudit.server import clock
from kvaudit.server.audits import alerts, options
from kvaudit.server.audits.models import Overdue, Plan, Run, RunState, StateChange
from kvaudit.server.audits.schedule.plans import period_of

MOST_LOOKED_AT = 5_000

_OPEN = """
    INSERT INTO audits_overdue (plan_id, deployment_id, since)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::timestamptz[])
    ON CONFLICT (plan_id, deployment_id) WHERE until IS NULL DO NOTHING
    RETURNING plan_id, deployment_id, since
"""


def open_for(late: Sequence[tuple[int, int, datetime]]) -> int:
    """(plan, deployment, since) that are overdue; new ones are told. In the caller's transaction."""
    oldest: dict[tuple[int, int], datetime] = {}
    for plan, deployment, since in late:
        oldest[plan, deployment] = min(since, oldest.get((plan, deployment), since))
    if not oldest:
        return 0
    ordered = sorted(oldest)
    with connection.cursor() as cursor:
        cursor.execute(
            _OPEN,
            [[plan for plan, _ in ordered], [each for _, each in ordered], [oldest[key] for key in ordered]],
        )
        new = cursor.fetchall()
    names = dict(Plan.objects.filter(pk__in={plan for plan, _, _ in new}).values_list("pk", "name"))
    alerts.save_and_notify(
        StateChange(
            at=clock.now(),
            deployment_id=deployment,
            plan_id=plan,
            what=StateChange.What.OVERDUE,
            summary=f"Plan {names[plan]}: the audit due at {since:%Y-%m-%d %H:%M} UTC has not run.",
        )
        for plan, deployment, since in new
    )
    return len(new)


def find() -> int:
    """Scheduled runs that still wait long after they could have begun; how many are new."""
    waiting = (
        Run.objects.filter(state=RunState.QUEUED, slot__isnull=False, not_before__lt=Now())
        .select_related("plan")
        .order_by("not_before")[:MOST_LOOKED_AT]
    )
    now = clock.now()
    periods: dict[int, float] = {}
    late = []
    for run in waiting:
        if run.plan is None or run.slot is None:
            continue
        if run.plan.pk not in periods:
            periods[run.plan.pk] = period_of(run.plan, run.slot).total_seconds()
        if (now - run.not_before).total_seconds() > options.overdue_seconds(periods[run.plan.pk]):
            late.append((run.plan.pk, run.deployment_id, run.slot))
    return open_for(late)


def close_abandoned() -> int:
    """Nothing is overdue of a plan that was replaced or switched off, or of a retired deployment."""
    gone = Q(plan__valid_to__isnull=False) | Q(plan__enabled=False) | Q(deployment__retired_at__isnull=False)
    return Overdue.objects.open().filter(gone).update(until=Now())
