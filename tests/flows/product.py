"""The product's processes for one flow: its own PostgreSQL, Valkey, worker and beat, each of which can
be killed. Nothing outlives the fixture: every child is its own session and is ended with its group."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import redis

from kvaudit.server.ops import embedded
from kvaudit.server.ops.process import Child, spawn
from tests.waiting import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]

# Leases and expiries are longer than any pause of a busy machine: a flow makes them lapse itself (`Product.lapse`).
QUICK = {
    "LEASE_SECONDS": 120,
    "HEARTBEAT_SECONDS": 0.5,
    "RING_AGAIN_SECONDS": 2,
    "SHORTEST_EXPIRY_SECONDS": 3600,
    "SHORTEST_OVERDUE_SECONDS": 5,
    "RETRY_DELAY_SECONDS": 900,
}


class Product:
    """Start with `open`, end with `close`. ``audit`` overrides numbers of `kvaudit.server.audits.options`."""

    def __init__(self, *, beat_seconds: float = 0.5, concurrency: int = 2, **audit: float) -> None:
        self.state = Path(tempfile.mkdtemp(prefix="kvaudit-flow-"))
        self.state.chmod(0o755)  # as root, PostgreSQL's ordinary user must pass
        self.postgres = embedded.Postgres(self.state, ("fsync=off",))
        self.valkey = embedded.Valkey(self.state)
        self.concurrency = concurrency
        self.env = {
            **os.environ,
            "SECRET_KEY": secrets.token_urlsafe(50),
            "ENCRYPTION_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "ALLOWED_HOSTS": "127.0.0.1",
            "KVAUDIT_BASE_URL": "http://127.0.0.1",
            "DJANGO_SETTINGS_MODULE": "tests.flows.settings",
            "FLOW_AUDIT": json.dumps({**QUICK, **audit}),
            "BEAT_SECONDS": str(beat_seconds),
            "DATABASE_URL": self.postgres.url(embedded.APP_ROLE),
            "BROKER_URL": self.valkey.url(),
            "KVAUDIT_ADMIN_PASSWORD": "only-for-this-flow-4711",
            "EGRESS_ALLOW": "127.0.0.0/8,[::1]",  # the flows' engines listen there
            "STATIC_ROOT": str(self.state / "static"),
            "LOG_LEVEL": "INFO",
            "PYTHONPATH": str(ROOT),
        }
        self.env.pop("DATABASE_OWNER_URL", None)
        self.children: dict[str, Child] = {}

    def open(self) -> Product:
        self.postgres.initialise()
        self.start_database()
        self.start_broker()
        owner = {**self.env, "DATABASE_OWNER_URL": self.postgres.url(embedded.OWNER_ROLE)}
        self._python("manage.py", "initialise", env=owner)
        return self

    def close(self) -> None:
        for name in ("beat-2", "beat", "worker-2", "worker", "valkey", "postgres"):
            if name in self.children:
                self.children[name].stop()
        for folder in (self.postgres.folder, self.postgres.socket, self.state):
            shutil.rmtree(folder, ignore_errors=True)

    # Processes

    def start_database(self) -> None:
        self._child("postgres", lambda log: self.postgres.start(log), self.postgres.ready)

    def start_broker(self) -> None:
        self._child("valkey", lambda log: self.valkey.start(log), self.valkey.ready)

    def start_worker(self, *queues: str, name: str = "worker", env: Mapping[str, str] | None = None) -> None:
        """One worker, unless it runs already; ready when it says so. ``worker-2`` is another. ``env`` is for
        it alone (`tests.drills.shifted`)."""
        if name in self.children:
            return
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "kvaudit.celery",
            "worker",
            "-l",
            "INFO",
            "-n",
            f"flow-{name}@%h",
        ]
        command += [
            "-Q",
            ",".join(queues or ("passive", "active", "maintenance", "desk")),
            "-c",
            str(self.concurrency),
        ]
        command += ["--without-gossip", "--without-mingle"]
        self._celery(name, command, env)

    def start_beat(self, name: str = "beat", env: Mapping[str, str] | None = None) -> None:
        if name in self.children:
            return
        command = [sys.executable, "-m", "celery", "-A", "kvaudit.celery", "beat", "-l", "INFO", "--pidfile="]
        self._celery(name, command, env)

    def kill(self, name: str) -> None:
        """SIGKILL to the process, if it runs, and its whole group, as the kernel's memory killer would."""
        if name not in self.children:
            return
        self.children[name].end_group()
        process = self.children.pop(name).process
        assert process is not None
        process.wait(PATIENCE)

    def stop(self, name: str) -> None:
        self.children.pop(name).stop()

    def kill_pool_child(self) -> int:
        """SIGKILL to one busy child of the worker's pool; the worker itself lives on."""
        process = self.children["worker"].process
        assert process is not None
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=True
        )
        children = [int(pid) for pid in listed.stdout.split()]
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        return len(children)

    # What is true

    def build(self, **wanted: Any) -> dict[str, int]:
        made: dict[str, int] = json.loads(self._python("-m", "tests.flows.builders", json.dumps(wanted)))
        return made

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._connect() as connection:
            return connection.execute(query, values).fetchall()  # type: ignore[arg-type]

    def one(self, query: str, *values: Any) -> Any:
        return self.rows(query, *values)[0][0]

    def do(self, statement: str, *values: Any) -> None:
        with self._connect() as connection:
            connection.execute(statement, values)  # type: ignore[arg-type]

    def until(self, truth: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
        """Wait until ``truth()`` holds; its value. The flow may just have killed the database."""
        return until(
            truth,
            what,
            seconds,
            ignoring=(psycopg.OperationalError,),
            about=lambda: f"{self.log('worker')}\n{self.log('beat')}",
            pause=0.1,
        )

    def lapse(self) -> None:
        """The leases of all running runs are over, as if their workers had been silent for long."""
        self.do("UPDATE audits_run SET lease_until = now() - interval '1 second' WHERE state = 'running'")

    @contextlib.contextmanager
    def no_run_ends(self) -> Iterator[None]:
        """Runs begin but cannot write what they found, so that whatever dies in here dies in mid-run.

        They hold their own rows while they wait: look at these, but write them only afterwards."""
        holder = psycopg.connect(self.postgres.url(embedded.OWNER_ROLE))
        try:
            holder.execute("LOCK TABLE audits_result IN SHARE ROW EXCLUSIVE MODE")
            yield
        finally:
            holder.close()  # and the lock with it; a killed database has let go already

    def quiet(self) -> None:
        """No plan is due any more."""
        self.do("UPDATE audits_plan SET enabled = false, next_due = NULL")

    def drain(self) -> None:
        """No plan is due any more, and everything queued or missed has its last row."""
        self.quiet()
        for what, query in (
            (
                "everything queued has ended",
                "SELECT count(*) FROM audits_run WHERE state IN ('queued', 'running')",
            ),
            ("what was missed is written", "SELECT count(*) FROM audits_plan WHERE missed_from IS NOT NULL"),
        ):
            self.until(lambda query=query: self.one(query) == 0, what, 2 * PATIENCE)  # type: ignore[misc]

    def queued(self, queue: str) -> int:
        """How many messages wait in the broker."""
        with redis.Redis(unix_socket_path=urlsplit(self.valkey.url()).path) as broker:
            return int(broker.llen(queue))

    def logged(self, name: str, words: str) -> int:
        """How often a process has said this."""
        path = self.state / f"{name}.log"
        return path.read_text(errors="replace").count(words) if path.exists() else 0

    def log(self, name: str) -> str:
        path = self.state / f"{name}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-25:]) if path.exists() else ""

    # How

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """As the owner; a statement that waits for a lock ends instead of hanging."""
        url = self.postgres.url(embedded.OWNER_ROLE)
        return psycopg.connect(url, autocommit=True, options=f"-c lock_timeout={PATIENCE:.0f}s")

    def _python(self, *arguments: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=env or self.env,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _celery(self, name: str, command: list[str], more: Mapping[str, str] | None = None) -> None:
        """Ready when it touches its sign of life (`kvaudit.server.ops.alive`)."""
        alive = self.state / f"{name}.alive"
        alive.unlink(missing_ok=True)
        env = {**self.env, "KVAUDIT_ALIVE_FILE": str(alive), **(more or {})}
        self._child(name, lambda log: spawn(command, env=env, log=log, cwd=ROOT), alive.exists)

    def _child(
        self, name: str, start: Callable[[Any], subprocess.Popen[bytes]], ready: Callable[[], bool]
    ) -> None:
        path = self.state / f"{name}.log"
        with path.open("ab") as log:
            child = Child(name, lambda: start(log), grace=20, log_path=path)
            child.start()
        self.children[name] = child

        def answers() -> bool:
            assert child.alive(), f"{name} does not start: {child.last_words()}"
            return ready()

        until(answers, f"{name} is ready", about=child.last_words)
