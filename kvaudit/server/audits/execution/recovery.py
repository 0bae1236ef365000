"""Finds what nobody else notices: lapsed leases, runs that waited too long, states that expired, changes of the
fleet's description. Every part is idempotent and safe beside itself (SKIP LOCKED, unique rows)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest, Now

from kvaudit.auditor.verdict import Result as Concluded
from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.audits import alerts, options
from kvaudit.server.audits.evidence import live_markers
from kvaudit.server.audits.execution import recording, rerun_rules, suspension
from kvaudit.server.audits.execution.claims import Claim
from kvaudit.server.audits.execution.outcome import Finished, Observed
from kvaudit.server.audits.models import CheckState, Kind, Result, Run, RunState, StateChange
from kvaudit.server.audits.schedule import overdue
from kvaudit.server.audits.state import intervals
from kvaudit.server.fleet.models import FingerprintChange

log = logging.getLogger(__name__)

MOST_AT_ONCE = 200
RETRY_PATIENCE = timedelta(minutes=10)
LOOK_BACK = timedelta(days=2)
"""Changes of the fleet's description that are older were handled, or nobody ran recovery for days;
then every state has been re-read since."""

LOST = "The worker that ran this was lost twice in the middle of it."
LOST_IN_SILENCE = (
    "The worker was lost while a prompt of {tokens:,} tokens and a short request beside it were silent: this prompt "
    "may have stopped the server from answering, so it is not sent again."
)


@dataclass(slots=True)
class Recovered:
    """What one pass found."""

    retried: int = 0
    lost: int = 0
    missed: int = 0
    overdue: int = 0
    expired: int = 0
    changes: int = 0


def recover() -> Recovered:
    """One pass; bounded, so that a long stop is worked off over several."""
    clock.set_by_database()
    found = Recovered()
    found.retried, found.lost = lapsed()
    found.missed = waited_too_long()
    found.overdue = overdue.find()
    overdue.close_abandoned()
    found.expired = note_expired()
    found.changes = described_changes()
    live_markers.prune()
    return found


@transaction.atomic
def lapsed() -> tuple[int, int]:
    """Runs whose worker fell silent: retried once, then ended as *error*. (retried, ended)"""
    silent = list(
        Run.objects.select_for_update(skip_locked=True, no_key=True, of=("self",))
        .select_related("plan")
        .filter(state=RunState.RUNNING, lease_until__lt=Now())
        .order_by("pk")[:MOST_AT_ONCE]
    )
    # Its progress says that a prompt was silent when the worker was last heard of: that may be what killed it.
    wedging = [run for run in silent if run.kind == Kind.ACTIVE and run.progress.get("silent")]
    again = [
        run
        for run in silent
        if run.attempt < options.MOST_ATTEMPTS and not run.cancel_requested_at and run not in wedging
    ]
    Run.objects.filter(pk__in=[run.pk for run in again]).update(
        state=RunState.QUEUED,
        lease_token=None,
        lease_until=None,
        rung_at=None,
        rings=0,
        not_before=Now(),
        # The first attempt may have used up the run's own time.
        expires_at=Greatest(F("expires_at"), Now() + RETRY_PATIENCE),
    )
    given_up = [run for run in silent if run not in again and run not in wedging]
    _end(given_up, LOST)
    for run in wedging:  # its prompt is not sent again
        why = LOST_IN_SILENCE.format(tokens=run.progress["silent"])
        _end([run], why)
        alerts.save_and_notify(suspension.suspend(run, why))
    given_up += wedging
    for run in silent:
        log.warning("run %s: the lease of attempt %d lapsed", run.pk, run.attempt)
    return len(again), len(given_up)


@transaction.atomic
def waited_too_long() -> int:
    """Queued runs past their expiry: *missed* when no worker ever began, else the retry never came
    and what the first attempt left is closed as *error*."""
    late = list(
        Run.objects.select_for_update(skip_locked=True, no_key=True, of=("self",))
        .select_related("plan")
        .filter(state=RunState.QUEUED, expires_at__lte=Now())
        .order_by("pk")[: MOST_AT_ONCE * 10]
    )
    never_begun = [run for run in late if run.attempt == 0]
    Run.objects.filter(pk__in=[run.pk for run in never_begun]).update(
        state=RunState.MISSED, summary="No worker took this run before it expired.", finished_at=Now()
    )
    overdue.open_for(
        [(run.plan_id, run.deployment_id, run.slot) for run in never_begun if run.plan_id and run.slot]
    )
    _end(
        [run for run in late if run.attempt > 0],
        "The worker that ran this was lost, and no worker took the retry in time.",
    )
    return len(late)


@transaction.atomic
def note_expired() -> int:
    """Tell the timeline of states that expired by age. Their effect needs no row: it is read."""
    rows = list(
        CheckState.objects.to_note(clock.now())
        .select_for_update(skip_locked=True, no_key=True, of=("self",))
        .order_by("expires_at")[: MOST_AT_ONCE * 5]
    )
    CheckState.objects.filter(pk__in=[row.pk for row in rows]).update(expiry_noted=True)
    alerts.save_and_notify(
        StateChange(
            at=row.expires_at,
            deployment_id=row.deployment_id,
            node_id=row.node_id,
            what=StateChange.What.EXPIRED,
            check_id=row.check_id,
            before=row.verdict,
            after=Verdict.INCONCLUSIVE.value,
            summary=f"{row.check_id}: not confirmed since {row.last_confirmed:%Y-%m-%d %H:%M} UTC.",
        )
        for row in rows
    )
    return len(rows)


@transaction.atomic
def described_changes() -> int:
    """Significant changes that no run saw (a node was removed or described anew): same consequences."""
    unhandled = FingerprintChange.objects.significant().filter(
        state_change=None, at__gte=clock.now() - LOOK_BACK
    )
    found = list(unhandled.order_by("pk")[:MOST_AT_ONCE])
    if not found:
        return 0
    intervals.lock_deployments({change.deployment_id for change in found})
    still = set(unhandled.filter(pk__in=[change.pk for change in found]).values_list("pk", flat=True))
    found = [change for change in found if change.pk in still]
    alerts.save_and_notify(rerun_rules.capacity_changes([(change, None) for change in found]))
    return len(found)


def _end(runs: Iterable[Run], problem: str) -> None:
    """End locked runs as they stand: *error* for every check that no attempt finished."""
    ended = {run.pk: run for run in runs}
    if not ended:
        return
    there: dict[int, set[str]] = {pk: set() for pk in ended}
    for run_id, check in Result.objects.filter(run__in=ended).values_list("run_id", "check_id"):
        there[run_id].add(check)
    now = clock.now()
    done = []
    for run in ended.values():
        placeholders = [
            Observed(
                Concluded(
                    check,
                    Verdict.ERROR,
                    problem,
                    next="Look at the log of the worker and at its memory; then audit again.",
                    does_not_prove="Nothing was learnt about the target.",
                ),
                now,
                unfinished=run.cancel_requested_at is not None,
            )
            for check in run.checks
            if check not in there[run.pk]
        ]
        claim = Claim(run.pk, run.lease_token or uuid.UUID(int=0), run.attempt)  # the rows are locked already
        done.append(Finished(claim, placeholders))
    recording.write(ended, done)
