"""Thin doors for beat and workers. Options of all tasks are in settings.py; every task may come twice."""

from __future__ import annotations

from collections.abc import Sequence

from celery import shared_task

from kvaudit.audits import dispatching, executing, recovering
from kvaudit.audits.models import Kind


@shared_task
def dispatch() -> None:
    """Every few seconds from beat: due plans become queued runs, and workers are rung for."""
    dispatching.dispatch()


@shared_task
def recover() -> None:
    """Every few seconds from beat: lapsed leases, missed and overdue runs, expired states."""
    recovering.recover()


@shared_task
def execute_passive(run_ids: Sequence[int]) -> None:
    """Up to 50 passive runs together."""
    executing.execute(run_ids, kind=Kind.PASSIVE)


@shared_task
def execute_active(run_id: int) -> None:
    """One active run."""
    executing.execute([run_id], kind=Kind.ACTIVE)
