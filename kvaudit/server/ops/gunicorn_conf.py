"""gunicorn's settings for one machine and for containers: ``gunicorn -c python:kvaudit.server.ops.gunicorn_conf``.

Threads, not asyncio: measured 7-14 times faster for these pages. Connections are waitress's business, so that slow ones
hold no thread (`kvaudit.server.ops.web_worker`).
"""

import gc
import os
from typing import Any

wsgi_app = "kvaudit.wsgi:application"
# `kvaudit up` has taken the port already and hands it over: nobody else can take it while the web is started again.
_listener = os.environ.get("KVAUDIT_LISTENER", "")
_address = f"{os.environ.get('KVAUDIT_HOST', '127.0.0.1')}:{os.environ.get('KVAUDIT_PORT', '8000')}"
bind = f"fd://{_listener}" if _listener else _address
worker_class = "kvaudit.server.ops.web_worker.WaitressWorker"
workers = int(os.environ.get("WEB_WORKERS", "2"))
threads = int(os.environ.get("WEB_THREADS", "4"))
# Loaded before the fork: less memory, and a fault in the environment ends the start with its sentence.
preload_app = True
timeout = 60
graceful_timeout = 5
accesslog = None
control_socket_disable = True  # otherwise a socket in the home folder, which a container does not have


def when_ready(server: Any) -> None:
    """Before the first worker is forked: import every page, then take all that is loaded out of the garbage
    collector's sight. A full collection that walks it takes 100 ms, in the middle of somebody's request. A page
    about a fleet holds thousands of rows until it is written: looking through them at every 700th costs a tenth."""
    from django.urls import get_resolver

    get_resolver().url_patterns  # noqa: B018 - the access imports them
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
