"""Thin doors for beat and workers. Both may come twice: they do what is still to be done."""

from __future__ import annotations

from celery import shared_task

from kvaudit.server.inquiries.request_logs import import_queue, import_worker


@shared_task(name="kvaudit.inquiries.tasks.import_log")
def import_log(pk: int) -> None:
    """One uploaded request log."""
    import_worker.import_log(pk)


@shared_task(name="kvaudit.inquiries.tasks.recover")
def recover() -> None:
    """Every few seconds from beat: imports whose worker was lost, or that no worker was told of."""
    import_queue.recover()
