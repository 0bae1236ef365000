"""The Celery application: ``celery -A kvaudit.celery worker|beat``. Options are in settings.py."""

from __future__ import annotations

import logging.config
import os
from pathlib import Path
from typing import Any

from celery import Celery
from celery.beat import Scheduler
from celery.signals import beat_init, heartbeat_sent, setup_logging, worker_ready

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kvaudit.settings")

from django.conf import settings

app = Celery("kvaudit")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect
def _log_like_django(**_: Any) -> None:
    """Connected so that Celery leaves logging alone: the same JSON lines as the web process."""
    logging.config.dictConfig(settings.LOGGING)


@worker_ready.connect
@heartbeat_sent.connect
def _sign_of_life(**_: Any) -> None:
    """Touch the file that the supervisor and the container's health check look at."""
    path = os.environ.get("KVAUDIT_ALIVE_FILE")
    if path:
        Path(path).touch()


class BeatScheduler(Scheduler):
    """In memory: due times live in Postgres, not in a file. Every tick is a sign of life."""

    def tick(self, *args: Any, **options: Any) -> float:
        """Send what is due; seconds until the next look."""
        delay: float = super().tick(*args, **options)
        _sign_of_life()
        return delay


@beat_init.connect
def _ring_at_once(**_: Any) -> None:
    """Beat waits a whole period before its first message; plans due now should not."""
    for entry in settings.CELERY_BEAT_SCHEDULE.values():
        app.send_task(entry["task"], **entry["options"])
