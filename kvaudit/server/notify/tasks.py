"""Doors for Celery."""

from __future__ import annotations

from celery import shared_task

from kvaudit.server.notify import delivery, ledger_alerts


@shared_task(name="kvaudit.notify.tasks.deliver", ignore_result=True)
def deliver() -> int:
    """Send what is due; sent after commit and by beat."""
    return delivery.deliver_due()


@shared_task(name="kvaudit.notify.tasks.notify_of_ledger", ignore_result=True)
def notify_of_ledger() -> bool:
    """From beat, soon after a verification may have ended."""
    return ledger_alerts.notify_of_ledger()


@shared_task(name="kvaudit.notify.tasks.tell_of_ledger", ignore_result=True)
def tell_of_ledger() -> bool:
    """Takes messages that beat of the release before has left in the queue, under the task's name of then."""
    return ledger_alerts.notify_of_ledger()
