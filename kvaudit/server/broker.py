"""Sends tasks to workers through the broker. What there is to do stands in the database; a message only says so
at once, and beat sends again for what nobody took."""

from __future__ import annotations

import logging
from typing import Any

from celery import current_app
from kombu.exceptions import OperationalError

log = logging.getLogger(__name__)


def notify_worker(task: str, *args: Any, queue: str, waiting: str, **options: Any) -> None:
    """Send the task, waiting for the broker no longer than somebody's request may wait. Where it does not
    answer nothing is raised: the log says that ``waiting`` ("the import 7 waits") for it. ``options`` are
    `send_task`'s."""
    quickly = {"max_retries": 1, "interval_start": 0.1}
    try:
        current_app.send_task(task, args=args, queue=queue, retry_policy=quickly, **options)
    except (OperationalError, OSError) as fault:
        log.warning("%s for the broker, which does not answer: %s", waiting, fault)
