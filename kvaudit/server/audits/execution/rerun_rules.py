"""Decides what a finished run brings about: the consequences of a capacity change, `drift` once the gate is
complete, the one re-run of an inconclusive, and a plan that is back on schedule. All inside the recording
transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db.models import F

from kvaudit.auditor import checks as known_checks
from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.audits import options
from kvaudit.server.audits.execution import enqueue
from kvaudit.server.audits.models import CheckState, Kind, Overdue, Run, RunState, StateChange, Trigger
from kvaudit.server.audits.schedule import windows
from kvaudit.server.audits.schedule.defaults import missing_for
from kvaudit.server.audits.schedule.plans import period_of
from kvaudit.server.audits.state.deployment_status import GATE
from kvaudit.server.audits.state.history import histories
from kvaudit.server.audits.state.intervals import expire_for
from kvaudit.server.fleet.models import SUSPENDER, Deployment, FingerprintChange, Pause

PASSIVE_PATIENCE = timedelta(hours=1)
ACTIVE_PATIENCE = timedelta(days=1)
FLAPPING_PAUSE = timedelta(minutes=5)
"""Between re-runs when the re-run itself sees another change: two processes behind one address."""


def capacity_changes(found: Sequence[tuple[FingerprintChange, Run | None]]) -> list[StateChange]:
    """Expire what was known before, queue the gate again; returns rows for the timeline, not saved.

    ``found`` pairs each significant change with the run that saw it (None: the fleet's description
    changed). The caller holds the deployments' locks.
    """
    expire_for([change for change, _ in found])
    rows = [
        StateChange(
            at=change.at,
            deployment_id=change.deployment_id,
            node_id=change.node_id,
            run=run,
            fingerprint_change=change,
            what=StateChange.What.CAPACITY,
            summary=change.summary,
            detail={"diff": change.diff},
        )
        for change, run in found
    ]
    seen_by_rerun = {
        change.deployment_id for change, run in found if run is not None and run.trigger == Trigger.DRIFT
    }
    for deployment in Deployment.objects.filter(pk__in={change.deployment_id for change, _ in found}):
        queue_gate(deployment, delay=FLAPPING_PAUSE if deployment.pk in seen_by_rerun else timedelta(0))
    return rows


def queue_gate(deployment: Deployment, *, delay: timedelta = timedelta(0)) -> list[Run]:
    """Queue the gate set after a change: passive checks at once, active ones in the next window.
    One that is still queued is enough."""
    if deployment.retired_at is not None:
        return []
    now = clock.now()
    again = (*GATE, "drift")
    passive = [check for check in again if check in known_checks.PASSIVE]
    unable = {missing.check for missing in missing_for(deployment)}
    active = [check for check in again if check not in known_checks.PASSIVE and check not in unable]
    runs = [_queue(deployment, Kind.PASSIVE, passive, now + delay, PASSIVE_PATIENCE)]
    opening = windows.next_open(now + delay, deployment.windows)
    if active and opening is not None:
        runs.append(_queue(deployment, Kind.ACTIVE, active, opening, ACTIVE_PATIENCE))
    return [run for run in runs if run is not None]


def drift_again(runs: Sequence[Run]) -> list[Run]:
    """Queue `drift` where these runs completed the gate set: it has last said that the gate had not
    run, and its plan may let that stand for an hour. A run of `drift` alone completes nothing, so
    this cannot go on for ever."""
    touched = {run.deployment_id for run in runs if not set(GATE).isdisjoint(run.checks)}
    behind = {
        state.deployment_id: state.deployment
        for state in CheckState.objects.filter(
            deployment__in=touched,
            deployment__retired_at=None,
            node=None,
            check_id="drift",
            closed_at=None,
            verdict__in=(Verdict.INCONCLUSIVE.value, Verdict.FAIL.value),
        ).select_related("deployment")
    }
    if not behind:
        return []
    now = clock.now()
    known = histories(behind.values())
    complete = [
        deployment
        for pk, deployment in sorted(behind.items())
        if known[pk].gate_completed_at is not None and not known[pk].gate_expired
    ]
    queued = [_queue(deployment, Kind.PASSIVE, ["drift"], now, PASSIVE_PATIENCE) for deployment in complete]
    return [run for run in queued if run is not None]


def _queue(
    deployment: Deployment, kind: Kind, checks: list[str], start: datetime, patience: timedelta
) -> Run | None:
    waiting = Run.objects.filter(
        deployment=deployment,
        kind=kind,
        trigger=Trigger.DRIFT,
        state=RunState.QUEUED,
        checks__contains=checks,
    )
    if waiting.exists():
        return None
    run = Run.objects.create(
        deployment=deployment,
        kind=kind,
        trigger=Trigger.DRIFT,
        checks=checks,
        not_before=start,
        expires_at=start + patience,
    )
    if start <= clock.now():
        enqueue.enqueue_run(run)
    return run


def rerun_inconclusive(runs: Sequence[Run]) -> list[Run]:
    """Queue the one re-run of checks that have *become* inconclusive in these runs.

    A check that stays inconclusive has had its re-run, and where the plan's own next run comes
    sooner, that one is the re-run.
    """
    delay = timedelta(seconds=options.retry_delay_seconds())
    suspended = set(
        Pause.objects.current()
        .filter(deployment__in={run.deployment_id for run in runs}, paused_by=SUSPENDER)
        .values_list("deployment_id", flat=True)
    )
    able = {
        run.pk: run
        for run in runs
        if not (run.kind == Kind.ACTIVE and run.deployment_id in suspended)  # not even once, and not later
        and run.trigger != Trigger.RETRY
        and not (run.plan and period_of(run.plan, run.created_at) <= delay)
    }
    became = CheckState.objects.filter(
        run__in=able, closed_at=None, verdict=Verdict.INCONCLUSIVE.value, since=F("last_confirmed")
    )
    checks: dict[int, set[str]] = {}
    for run_id, check in became.values_list("run_id", "check_id"):
        checks.setdefault(run_id, set()).add(check)
    start = clock.now() + delay
    return Run.objects.bulk_create(
        [
            Run(
                deployment_id=able[run_id].deployment_id,
                plan=able[run_id].plan,
                kind=able[run_id].kind,
                trigger=Trigger.RETRY,
                retry_of=able[run_id],
                checks=[check for check in able[run_id].checks if check in again],
                where=able[run_id].where,
                not_before=start,
                expires_at=start + PASSIVE_PATIENCE,
            )
            for run_id, again in sorted(checks.items())
        ]
    )


def back_on_schedule(runs: Iterable[Run]) -> list[StateChange]:
    """Close what was overdue of the plans of these finished runs; returns rows, not saved."""
    now = clock.now()
    by_target = {(run.plan_id, run.deployment_id): run for run in runs if run.plan_id is not None}
    late = [
        each
        for each in Overdue.objects.open().filter(
            plan__in={plan for plan, _ in by_target},
            deployment__in={deployment for _, deployment in by_target},
        )
        if (each.plan_id, each.deployment_id) in by_target
    ]
    Overdue.objects.filter(pk__in=[overdue.pk for overdue in late]).update(until=now)
    return [
        StateChange(
            at=now,
            deployment_id=overdue.deployment_id,
            plan_id=overdue.plan_id,
            run=by_target[overdue.plan_id, overdue.deployment_id],
            what=StateChange.What.BACK,
            summary=f"Audited again; nothing had run since {overdue.since:%Y-%m-%d %H:%M} UTC.",
        )
        for overdue in late
    ]
