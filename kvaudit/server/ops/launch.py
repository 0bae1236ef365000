"""Builds the commands and environments of what runs beside PostgreSQL and Valkey."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen

from kvaudit.server.ops.process import Child, spawn
from kvaudit.server.ops.state import REPOSITORY, State

SERVERS, LAB, PRODUCT = range(3)  # tiers: each needs the ones before it, and stops before them


@dataclass
class Launch:
    """One running ``kvaudit up``: what the parts need to know of it."""

    state: State
    host: str
    port: int
    env: dict[str, str]  # of the children; without the owner's database URL
    concurrency: int = 2
    listener: socket.socket | None = None  # the port, taken: the web is given it
    retention_url: str = (
        ""  # of the role that drops old evidence: for `kvaudit.server.ops.evidence_expiry` alone
    )
    for_web: dict[str, str] = field(default_factory=dict)  # what nobody but the web process may know

    @property
    def url(self) -> str:
        """Where a browser on this machine finds it."""
        host = "127.0.0.1" if self.host in {"0.0.0.0", "::"} else self.host  # noqa: S104 - compared, not bound
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def alive_file(self, name: str) -> Path:
        """The file a worker or beat touches as long as it lives."""
        return self.state.folder / "run" / f"{name}.alive"

    def child(
        self,
        name: str,
        command: list[str],
        *,
        tier: int,
        grace: float = 10.0,
        when_orphaned: signal.Signals = signal.SIGTERM,
        own: Mapping[str, str] | None = None,
        files: Sequence[int] = (),
    ) -> Child:
        """A child whose output goes to its log; it inherits the composed environment, and ``own`` and the open
        ``files`` are for it alone."""

        def start() -> Popen[bytes]:
            self.alive_file(name).unlink(missing_ok=True)
            env = self.env | {"KVAUDIT_ALIVE_FILE": str(self.alive_file(name))} | dict(own or {})
            with self.state.open_log(name) as log:
                return spawn(
                    command, env=env, log=log, death_signal=when_orphaned, cwd=REPOSITORY, pass_fds=files
                )

        log_path = self.state.logs / f"{name}.log"
        return Child(name, start, grace=grace, log_path=log_path, tier=tier)

    def python(self, name: str, *module: str, tier: int, grace: float = 10.0) -> Child:
        """A child that runs ``python -m`` something."""
        return self.child(name, [sys.executable, "-m", *module], tier=tier, grace=grace)


def web(launch: Launch) -> Child:
    """gunicorn, the only one that can open sealed text."""
    command = [sys.executable, "-m", "gunicorn", "-c", "python:kvaudit.server.ops.gunicorn_conf"]
    if launch.listener is None:
        return launch.child("web", command, tier=PRODUCT, own=launch.for_web)
    number = launch.listener.fileno()
    own = launch.for_web | {"KVAUDIT_LISTENER": str(number)}
    return launch.child("web", command, tier=PRODUCT, own=own, files=[number])


def worker(launch: Launch, queue: str) -> Child:
    """A Celery worker for one kind of audit, so that a long active audit never delays a passive one; each
    also serves *maintenance*, the tasks that keep everything going, and *desk*, as that queue was called in the
    release before."""
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "kvaudit.celery",
        "worker",
        "-Q",
        f"{queue},maintenance,desk",
    ]
    command += ["-l", "INFO", "-n", f"{queue}@%h", "-c", str(launch.concurrency)]
    command += ["--without-gossip", "--without-mingle"]
    # Orphaned, it must not wait for its tasks (SIGTERM would), nor for Celery, whose cold shutdown (SIGQUIT) was
    # seen to wait for ever on a lock: the lease lapses and the run is retried. The pool ends with it (`apps`).
    return launch.child(f"worker-{queue}", command, tier=PRODUCT, grace=8.0, when_orphaned=signal.SIGKILL)


def beat(launch: Launch) -> Child:
    """Celery beat, which only sends messages: two of them do no harm."""
    return launch.python(
        "beat", "celery", "-A", "kvaudit.celery", "beat", "-l", "INFO", "--pidfile=", tier=PRODUCT, grace=5.0
    )


def child_environment(composed: dict[str, str]) -> dict[str, str]:
    """Our environment with ``composed`` over it, without what only the initialiser or the web may know."""
    env = {**os.environ, **composed}
    for name in (
        "DATABASE_OWNER_URL",
        "DATABASE_RETENTION_URL",
        "KVAUDIT_ADMIN_PASSWORD",
        "SEAL_PRIVATE_KEY",
    ):
        env.pop(name, None)
        env.pop(f"{name}_FILE", None)
    return env
