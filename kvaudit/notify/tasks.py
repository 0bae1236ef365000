"""Doors for Celery."""

from __future__ import annotations

from celery import shared_task

from kvaudit.notify.delivery import deliver_due


@shared_task(name="kvaudit.notify.tasks.deliver", ignore_result=True)
def deliver() -> int:
    """Send what is due; rung after commit and by beat."""
    return deliver_due()
