"""Operations: starting, initialising and probing the product."""

import signal
from typing import Any

from celery.signals import worker_process_init
from django.apps import AppConfig

from kvaudit.server.ops.process import follow_parent


class OpsConfig(AppConfig):
    """Owns the management commands; has no tables."""

    name = "kvaudit.server.ops"
    label = "ops"
    verbose_name = "Operations"

    def ready(self) -> None:
        """The server's egress list holds from here on, in every process. And every process and thread notifies
        workers through our Celery application: without this, a web thread would ask Celery's default one, which
        knows no broker of ours."""
        from kvaudit.auditor.transport import egress
        from kvaudit.celery import app
        from kvaudit.server.ops.egress import server_policy

        egress.install(server_policy())
        app.set_default()
        worker_process_init.connect(_end_with_the_worker, dispatch_uid="end with the worker", weak=False)


def _end_with_the_worker(**_: Any) -> None:
    """A process of a worker's pool must not go on with its audit when the worker was killed: the lease lapses and
    another worker carries the run out."""
    follow_parent(signal.SIGKILL)
