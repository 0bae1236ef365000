"""The Celery application: ``celery -A kvaudit.celery worker|beat``. Options are in settings.py."""

from __future__ import annotations

import contextlib
import logging
import logging.config
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery import Celery, Task
from celery.beat import ScheduleEntry, Scheduler
from celery.signals import beat_init, heartbeat_sent, setup_logging, worker_ready

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kvaudit.settings")

from django.conf import settings

log = logging.getLogger(__name__)


if TYPE_CHECKING:
    AnyTask = Task[Any, Any]
else:
    AnyTask = Task  # generic in its stubs alone


class OnTime(AnyTask):
    """Carried out by workers whose clock can be used. Another leaves it: beat sends it again, and meanwhile it
    rests, so that the next message goes to somebody else."""

    rest = 30.0
    """Seconds that a process of such a worker does nothing."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from kvaudit.server.audits.execution import enqueue, worker_clocks

        if self.request.called_directly or worker_clocks.may_work(self.request.hostname or "worker"):
            return super().__call__(*args, **kwargs)
        if self.name in ("kvaudit.audits.tasks.execute_passive", "kvaudit.audits.tasks.execute_active"):
            runs: Any = kwargs.get("run_ids", kwargs.get("run_id", args[0] if args else []))
            enqueue.mark_unsent(runs if isinstance(runs, list | tuple) else [runs])
        time.sleep(self.rest)
        return None


app = Celery("kvaudit", task_cls=OnTime)
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
        with contextlib.suppress(OSError):  # on a full disk: no sign, but alive
            Path(path).touch()


class BeatScheduler(Scheduler):
    """In memory: due times live in Postgres, not in a file. Every tick is a sign of life.

    A message says "look", and looking once does the work of a hundred messages: while many wait, none is
    added. No message expires, for that is judged by the clocks of two machines, and a worker 2 h ahead threw
    every one away.
    """

    most_waiting = 50
    _silent_until = 0.0  # one line a minute is enough

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send it, unless nobody takes what was sent."""
        queue = (entry.options or {}).get("queue")
        if not queue or self._waiting(queue) < self.most_waiting:
            super().apply_entry(entry, producer=producer)
        elif (now := time.monotonic()) >= self._silent_until:
            self._silent_until = now + 60
            log.warning("%d messages wait on %s for a worker: none is added", self.most_waiting, queue)

    def _waiting(self, queue: str) -> int:
        """Messages that no worker has taken; 0 where the broker cannot say."""
        connection: Any = self.connection
        try:
            count: int = connection.default_channel.queue_declare(queue, passive=True).message_count
        except (*connection.connection_errors, *connection.channel_errors):
            return 0  # an empty queue is not there; a broker that is away is told of when sending fails
        return count

    def tick(self, *args: Any, **options: Any) -> float:
        """Send what is due; seconds until the next look."""
        delay: float = super().tick(*args, **options)
        _sign_of_life()
        return delay


@beat_init.connect
def _send_at_once(**_: Any) -> None:
    """Beat waits a whole period before its first message; plans due now should not."""
    for entry in settings.CELERY_BEAT_SCHEDULE.values():
        app.send_task(entry["task"], **entry["options"])
