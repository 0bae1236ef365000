"""Queues runs for due plans. Every slot of a plan becomes exactly one row per deployment.

Two beats or two dispatchers do no harm: a plan is claimed with FOR UPDATE SKIP LOCKED, and
(plan, deployment, slot) is unique.

After a stop the newest slot runs and the older ones become *missed* rows. The newest 1,000 slots of a
gap get a row each, written a bounded number per tick; what is older shares one row per deployment
whose ``slots`` counts them (a year without a dispatcher must not cost millions of rows before the
first audit).
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from kvaudit.server.audits import options
from kvaudit.server.audits.execution import enqueue
from kvaudit.server.audits.models import Kind, Plan, Run, RunState, Trigger
from kvaudit.server.audits.schedule import overdue, windows
from kvaudit.server.audits.schedule.plans import schedule_of
from kvaudit.server.audits.schedule.times import newest_and_older
from kvaudit.server.clock import database_now
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.services import record

log = logging.getLogger(__name__)

LONGEST_TICK = 10.0  # seconds; what is left is due at the next tick too
SINGLE_ROWS = 1_000  # slots of one gap that get a row each
ROWS_PER_TICK = 2_000
DISPATCHER = "system:dispatch"
MISSED = "Nothing dispatched audits at that time."


@dataclass(slots=True)
class Dispatched:
    """What one tick did."""

    plans: int = 0
    runs: int = 0
    missed: int = 0
    sent: int = 0


def dispatch() -> Dispatched:
    """Queue what is due, write missed slots, send runs to workers."""
    done = Dispatched()
    until = time.monotonic() + LONGEST_TICK
    while time.monotonic() < until and (queued := _next_plan()) is not None:
        done.plans += 1
        done.runs += queued
    done.sent += enqueue.enqueue_due()
    while time.monotonic() < until and done.missed < ROWS_PER_TICK:
        written = _next_gap(ROWS_PER_TICK - done.missed)
        if written is None:
            break
        done.missed += written
    return done


@transaction.atomic
def _next_plan() -> int | None:
    """Claim one due plan and queue its newest slot; the number of runs, None when no plan is due."""
    due = Plan.objects.enabled().filter(next_due__lte=Now()).order_by("next_due", "pk")
    plan = due.select_for_update(skip_locked=True, of=("self",)).first()
    if plan is None or plan.next_due is None:
        return None
    schedule, now = schedule_of(plan), database_now()
    if problem := schedule.problem():
        # A zone or expression that this machine does not know: say so, and let the other plans go on.
        log.error("plan %s (%s) cannot be scheduled: %s", plan.pk, plan.name, problem)
        Plan.objects.filter(pk=plan.pk).update(next_due=None)
        return 0
    first = plan.next_due
    newest = schedule.newest(first, now)
    following = schedule.next_after(newest)
    runs = _runs(plan, newest, following)
    Run.objects.bulk_create(runs, ignore_conflicts=True)  # a slot that another dispatcher has written is done
    gap = {}
    if newest > first:
        gap = {"missed_from": plan.missed_from or first, "missed_before": newest}
    Plan.objects.filter(pk=plan.pk).update(next_due=following, **gap)
    return len(runs)


def _runs(plan: Plan, slot: datetime, following: datetime) -> list[Run]:
    runs = []
    for deployment in deployments_of(plan):
        start = _start(plan, deployment, slot)
        if start is None or (start > slot + timedelta(seconds=plan.jitter) and start >= following):
            continue  # its window opens only after a later slot, which then runs
        runs.append(
            Run(
                plan=plan,
                deployment=deployment,
                slot=slot,
                kind=plan.kind,
                trigger=Trigger.SCHEDULE,
                checks=plan.checks,
                where=plan.where,
                not_before=start,
                # The next slot asks again; but a plan of seconds leaves a worker time to come.
                expires_at=max(following, start + timedelta(seconds=options.shortest_expiry_seconds())),
            )
        )
    return runs


def _start(plan: Plan, deployment: Deployment, slot: datetime) -> datetime | None:
    """Slot + jitter, moved to when the windows are open; None when they never are together."""
    lists = [plan.windows]
    if plan.kind == Kind.ACTIVE:
        lists.append(deployment.windows)
    return windows.next_open(slot + jitter(plan, deployment, slot), *lists)


def jitter(plan: Plan, deployment: Deployment, slot: datetime) -> timedelta:
    """Between 0 and the plan's jitter, the same whenever it is asked for."""
    seed = hashlib.sha256(f"{plan.series}:{deployment.pk}:{slot.timestamp()}".encode()).digest()
    return timedelta(seconds=plan.jitter * int.from_bytes(seed[:4], "big") / 2**32)


def deployments_of(plan: Plan) -> list[Deployment]:
    """What the plan selects now and is not retired, in order of id."""
    chosen = Q(pk__in=plan.deployments.values("pk"))
    if plan.team_id is not None or plan.engine:
        matching = Q()
        if plan.team_id is not None:
            matching &= Q(team_id=plan.team_id)
        if plan.engine:
            matching &= Q(engine=plan.engine)
        chosen |= matching
    return list(Deployment.objects.active().filter(chosen).order_by("pk"))


@transaction.atomic
def _next_gap(most: int) -> int | None:
    """Write up to ``most`` missed rows of one plan, newest slots first; None when no gap is left."""
    gaps = Plan.objects.filter(missed_from__isnull=False).order_by("missed_before", "pk")
    plan = gaps.select_for_update(skip_locked=True, of=("self",)).first()
    if plan is None or plan.missed_from is None or plan.missed_before is None:
        return None
    schedule = schedule_of(plan)
    slots, older, last_older = newest_and_older(schedule, plan.missed_from, plan.missed_before, SINGLE_ROWS)
    deployments = deployments_of(plan)
    rows = []
    if last_older is not None:
        rows += [
            _missed(plan, deployment, last_older, slots=older)
            for deployment in _there(deployments, last_older)
        ]
    some = list(slots[-max(1, most // max(1, len(deployments))) :])
    for slot in some:
        rows += [_missed(plan, deployment, slot) for deployment in _there(deployments, slot)]
    Run.objects.bulk_create(rows, ignore_conflicts=True, batch_size=1_000)
    left = len(slots) > len(some)
    Plan.objects.filter(pk=plan.pk).update(
        missed_from=slots[0] if left else None, missed_before=some[0] if left else None
    )
    if rows:
        overdue.open_for(
            [(plan.pk, deployment.pk, some[0] if some else plan.missed_from) for deployment in deployments]
        )
        record(
            actor=DISPATCHER,
            kind="runs.missed",
            subject=f"plan:{plan.series}",
            digest=digest_of(
                [[run.deployment_id, run.slot.isoformat(), run.slots] for run in rows if run.slot]
            ),
        )
    return len(rows)


def _there(deployments: Iterable[Deployment], slot: datetime) -> list[Deployment]:
    """A deployment misses nothing before it exists."""
    return [deployment for deployment in deployments if deployment.created_at <= slot]


def _missed(plan: Plan, deployment: Deployment, slot: datetime, slots: int = 1) -> Run:
    return Run(
        plan=plan,
        deployment=deployment,
        slot=slot,
        slots=slots,
        kind=plan.kind,
        trigger=Trigger.SCHEDULE,
        checks=plan.checks,
        where=plan.where,
        state=RunState.MISSED,
        summary=MISSED,
        not_before=slot,
        expires_at=slot,
    )
