"""Thin doors for beat and workers. Both may come twice: they do what is still to be done."""

from __future__ import annotations

from celery import shared_task

from kvaudit.server.ledger import noted_head, verify_job


@shared_task(name="kvaudit.ledger.tasks.verify")
def verify(pk: int) -> None:
    """One verification that somebody asked for."""
    verify_job.carry_out(pk)


@shared_task(name="kvaudit.ledger.tasks.verify_when_due")
def verify_when_due() -> None:
    """Every few minutes from beat; verifies once a day."""
    verify_job.begin_when_due()


@shared_task(name="kvaudit.ledger.tasks.note_head")
def note_head() -> None:
    """Every minute from beat; keeps the head outside the database."""
    noted_head.note()
