"""Doors for Celery."""

from __future__ import annotations

from celery import shared_task

from kvaudit.server.notify.delivery import deliver_due
from kvaudit.server.notify.ledger_alerts import tell_of_ledger


@shared_task(name="kvaudit.notify.tasks.deliver", ignore_result=True)
def deliver() -> int:
    """Send what is due; rung after commit and by beat."""
    return deliver_due()


@shared_task(name="kvaudit.notify.tasks.tell_of_ledger", ignore_result=True)
def tell_when_ledger_is_broken() -> bool:
    """From beat, soon after a verification may have ended."""
    return tell_of_ledger()
