"""Starts the process that drops old evidence a few times a day, as a database role that nothing else has."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from kvaudit.server.ops.launch import Launch
from kvaudit.server.ops.process import spawn
from kvaudit.server.ops.progress import Progress
from kvaudit.server.ops.state import REPOSITORY

FIRST = 600.0
"""Seconds after the start; then every `EVERY`."""
EVERY = 6 * 3600.0


class Retaining:
    """Looked at by the supervisor; without DATABASE_RETENTION_URL all evidence stays."""

    def __init__(self, launch: Launch, progress: Progress) -> None:
        self._launch, self._progress = launch, progress
        self._due = time.monotonic() + FIRST
        self._process: subprocess.Popen[bytes] | None = None

    def look(self) -> None:
        """Start a pass that is due, and say so when one failed. Never waits."""
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            self._process = None
            if code:
                log = self._launch.state.logs / "retention.log"
                self._progress.say(
                    f"old evidence could not be dropped (log: {log}); trying again in {EVERY / 3600:g} h"
                )
        if self._launch.retention_url and time.monotonic() >= self._due:
            self._due = time.monotonic() + EVERY
            self._start()

    def end(self) -> None:
        """Stop a pass that runs: what it has not committed is undone, and done another time."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def _start(self) -> None:
        command = [sys.executable, "-m", "django", "expire_evidence"]
        env = self._launch.env | {"DATABASE_URL": self._launch.retention_url}
        env.pop("DATABASE_URL_FILE", None)
        with self._launch.state.open_log("retention") as log:
            self._process = spawn(command, env=env, log=log, death_signal=signal.SIGKILL, cwd=REPOSITORY)
