"""Starts the real ``kvaudit up`` for tests and knows what it left behind."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

from tests.waiting import PATIENCE, until

REPOSITORY = Path(__file__).resolve().parent.parent.parent.parent
READY = re.compile(r"^ready (http://127\.0\.0\.1:(\d+)) user admin password (\S.*)$", re.MULTILINE)
# What the tests' own settings.py was given must not reach the product under test.
_OURS = (
    "SECRET_KEY", "ENCRYPTION_KEY", "ALLOWED_HOSTS", "KVAUDIT_BASE_URL", "DATABASE_URL", "DATABASE_OWNER_URL",
    "BROKER_URL", "EMAIL_BACKEND", "STATIC_ROOT", "LOG_LEVEL", "DJANGO_SETTINGS_MODULE", "KVAUDIT_TEST_STATE",
    "KVAUDIT_STATE", "KVAUDIT_PORT", "KVAUDIT_HOST", "KVAUDIT_ADMIN_PASSWORD",
)  # fmt: skip


def clean_environment() -> dict[str, str]:
    """The environment without the variables of the tests."""
    return {name: value for name, value in os.environ.items() if name not in _OURS}


_reserved: list[IO[str]] = []  # the lock files of our ports, held until this process ends
_outputs = itertools.count(1)


def free_port() -> int:
    """A port for a product that binds it later: nobody has it, no other test is given it, and it lies outside
    the range from which the kernel serves whoever asks for any port (one bound and let go is taken again by
    the next connection)."""
    for port in random.sample(range(10_000, _first_ephemeral()), 500):
        lock = (Path(tempfile.gettempdir()) / f"kvaudit-tests-port-{port}").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        _reserved.append(lock)
        return port
    raise AssertionError("no port of 500 is free")


def _first_ephemeral() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        first = 32_768
    return first if first > 12_000 else 32_768


def new_state() -> Path:
    """A folder that an ordinary user may pass through, as PostgreSQL must when we are root."""
    folder = Path(tempfile.mkdtemp(prefix="kvaudit-up-"))
    folder.chmod(0o755)
    return folder / "var"


def status_of(url: str, seconds: float = 30) -> int:
    """The HTTP status of a GET, 0 when nobody answers within ``seconds``."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            url, timeout=seconds
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


class Up:
    """One ``kvaudit up``, its output in a file."""

    def __init__(
        self,
        state: Path,
        port: int,
        *,
        prefix: tuple[str, ...] = (),
        under_make: bool = False,
        lab: bool = False,
        output: Path | None = None,
        **variables: str,
    ) -> None:
        self.state, self.port = state, port
        self.url = f"http://127.0.0.1:{port}"
        self.output = output or state.parent / f"output-{next(_outputs)}"
        environment = (
            clean_environment() | {"KVAUDIT_STATE": str(state), "KVAUDIT_PORT": str(port)} | variables
        )
        command = [
            *(prefix or (sys.executable,)),
            "-m",
            "kvaudit.cli",
            "up",
            *(() if lab else ("--no-lab",)),
            "--concurrency",
            "1",
        ]
        if under_make:
            makefile = state.parent / "Makefile"
            makefile.write_text(f"up:\n\t@exec {' '.join(command)} --with-parent\n")
            command = ["make", "-f", str(makefile), "up"]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # As from a terminal: who runs the tests in the background has interrupts ignored, and make heeds that.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def said(self) -> str:
        """Everything it printed so far."""
        return self.output.read_text()

    def ready(self) -> str:
        """Wait for the ready line; gives the password shown in it."""
        until(
            lambda: READY.search(self.said()) or self.process.poll() is not None,
            "the ready line",
            3 * PATIENCE,
            about=lambda: self.said() + self.logs(),
        )
        found = READY.search(self.said())
        assert found, f"ended with {self.process.poll()}: {self.said()}{self.logs()}"
        assert found[1] == self.url
        return found[3]

    def get(self, path: str) -> str:
        """The body of a GET."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.url + path, timeout=PATIENCE) as answer:
            return str(answer.read().decode())

    def logs(self) -> str:
        """The ends of all logs, for a failing test's message."""
        return "".join(
            f"\n== {path.name}\n{path.read_text()[-1500:]}" for path in self.state.glob("logs/*.log")
        )

    def groups(self) -> dict[str, int]:
        """Process groups of the children by name."""
        rows = json.loads((self.state / "run" / "children.json").read_text())
        return {row["name"]: row["group"] for row in rows}

    def ended(self) -> int:
        """Wait for its end; gives the exit code."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running: {self.said()}") from None

    def destroy(self) -> None:
        """Whatever happened, leave nothing running and nothing on disk."""
        try:
            groups = self.groups()
        except (OSError, ValueError):
            groups = {}
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        for group in groups.values():
            if members(group):
                os.killpg(group, signal.SIGKILL)
        shutil.rmtree(self.state.parent, ignore_errors=True)


def members(group: int) -> list[int]:
    """Processes of a group that are not zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[2] == str(group) and fields[0] != "Z":
                found.append(int(entry.name))
    return found
