"""gunicorn's worker that serves with waitress: gunicorn starts, restarts and ends the processes, waitress talks.

gunicorn's own threads read heads and bodies from the sockets, one thread to a connection, without a deadline: sixteen
slow clients stopped the site (docs/decisions/0015-slow-clients-and-logins.md).
"""

from __future__ import annotations

import logging
import os
import resource
import time
from typing import Any

from gunicorn.workers.base import Worker
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.task import ThreadedTaskDispatcher

from kvaudit.server.ops.web_connections import HIGH_WATER, MOST_CONNECTIONS, Server

SWEEP_SECONDS = 0.5
LARGEST_HEAD = 64 * 1024
LARGEST_BODY = 2**40
"""Pages have limits of their own, told in words (`kvaudit.server.web.kit.largest_body`)."""
FILES_PER_CONNECTION = 3


class WaitressWorker(Worker):  # type: ignore[misc]
    """One process: a loop for the sockets, ``threads`` for the pages."""

    def run(self) -> None:
        _allow_files(MOST_CONNECTIONS * FILES_PER_CONNECTION + 200)
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        sockets: dict[int, Any] = {}
        threads = ThreadedTaskDispatcher()
        threads.set_thread_count(self.cfg.threads)
        servers = [
            Server(
                self.wsgi,
                sockets,
                True,
                listener.sock,
                dispatcher=threads,
                adj=_adjustments(self.cfg),
                sockinfo=(listener.sock.family, listener.sock.type, 0, listener.sock.getsockname()),
                bind_socket=False,
            )
            for listener in self.sockets
        ]
        swept = 0.0
        while self.alive and self._has_parent():
            self.notify()
            wasyncore.loop(timeout=SWEEP_SECONDS, use_poll=True, map=sockets, count=1)
            now = time.monotonic()
            if now - swept >= SWEEP_SECONDS:
                swept = now
                for server in servers:
                    server.sweep(now)
        self._finish(servers, sockets, threads)

    def _finish(
        self, servers: list[Server], sockets: dict[int, Any], threads: ThreadedTaskDispatcher
    ) -> None:
        """Answer what is being answered, for as long as the grace allows."""
        deadline = time.monotonic() + self.cfg.graceful_timeout
        while _busy(servers) and time.monotonic() < deadline:
            self.notify()
            wasyncore.loop(timeout=0.1, use_poll=True, map=sockets, count=1)
        threads.shutdown(timeout=0.1)

    def _has_parent(self) -> bool:
        if self.ppid == os.getppid():
            return True
        self.log.info("Parent changed, shutting down: %s", self)
        return False


def _busy(servers: list[Server]) -> bool:
    finished = [server.finish() for server in servers]  # every one is told, whatever the first says
    return not all(finished)


def _adjustments(cfg: Any) -> Adjustments:
    return Adjustments(
        threads=cfg.threads,
        backlog=cfg.backlog,
        connection_limit=MOST_CONNECTIONS + 100,
        ident="",
        # Whether a proxy is believed is settings.py's business: it reads these headers only where one is declared.
        clear_untrusted_proxy_headers=False,
        max_request_header_size=LARGEST_HEAD,
        max_request_body_size=LARGEST_BODY,
        outbuf_overflow=256 * 1024,
        inbuf_overflow=256 * 1024,
        outbuf_high_watermark=HIGH_WATER,
        log_socket_errors=False,
    )


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
