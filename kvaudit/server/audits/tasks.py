"""Thin doors for beat and workers. Options of all tasks are in settings.py; every task may come twice."""

from __future__ import annotations

from collections.abc import Sequence

from celery import shared_task

from kvaudit.server.audits.execution import probe_thread, recovery, run_task
from kvaudit.server.audits.models import Kind
from kvaudit.server.audits.schedule import dispatch as dispatching


@shared_task(name="kvaudit.audits.tasks.dispatch")
def dispatch() -> None:
    """Every few seconds from beat: due plans become queued runs, which are sent to workers."""
    dispatching.dispatch()


@shared_task(name="kvaudit.audits.tasks.recover")
def recover() -> None:
    """Every few seconds from beat: lapsed leases, missed and overdue runs, expired states."""
    recovery.recover()


@shared_task(name="kvaudit.audits.tasks.expire_evidence")
def expire_evidence() -> None:
    """Takes messages that beat of the release before has left in the queue: evidence is dropped by a process of its own
    now (`kvaudit.server.ops.evidence_expiry`), and an unknown name would be an error in the log of an upgrade."""


@shared_task(name="kvaudit.audits.tasks.execute_passive")
def execute_passive(run_ids: Sequence[int]) -> None:
    """Up to 50 passive runs together."""
    run_task.execute(run_ids, kind=Kind.PASSIVE)
    probe_thread.leave_if_abandoned()


@shared_task(name="kvaudit.audits.tasks.execute_active")
def execute_active(run_id: int) -> None:
    """One active run."""
    run_task.execute([run_id], kind=Kind.ACTIVE)
    probe_thread.leave_if_abandoned()
