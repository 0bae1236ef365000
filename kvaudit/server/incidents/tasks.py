"""A thin door for beat. It may come twice and late: it does what is still to be done."""

from __future__ import annotations

from celery import shared_task

from kvaudit.server.incidents import opening


@shared_task(name="kvaudit.incidents.tasks.consume")
def consume() -> None:
    """Every few seconds: changes of state open incidents, add evidence to them, reopen action items."""
    opening.consume()
