"""Starts processes that never outlive us: in a session of their own, ended with their whole group."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_PR_SET_PDEATHSIG = 1
_LONGEST_BACK_OFF = 30.0
_STEADY_AFTER = 60.0  # seconds alive after which earlier failures are forgiven


def die_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    """A ``preexec_fn`` that asks Linux to signal the child when its parent dies, kill -9 included.

    None elsewhere. The kernel watches the *thread* that forks, so start children from the main one.
    """
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)  # resolved before the fork
    parent = os.getpid()

    def hook() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # it died in between
            os._exit(1)

    return hook


def follow_parent(number: signal.Signals = signal.SIGTERM) -> None:
    """Ask to be signalled when our own parent dies (``make`` killed with -9); Linux only."""
    if sys.platform.startswith("linux"):
        parent = os.getppid()
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), number)


def catches_interrupt(pid: int) -> bool:
    """Whether the process has a handler for SIGINT (Linux; False when that cannot be known).

    GNU make drops its handler when it is interrupted, then waits for its children without passing
    the signal on: a parent that no longer catches it has been asked to stop.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    for line in status.splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) & 1 << (signal.SIGINT - 1))
    return False


def spawn(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    log: IO[bytes],
    death_signal: signal.Signals = signal.SIGTERM,
    cwd: str | Path | None = None,
    **user: Any,
) -> subprocess.Popen[bytes]:
    """Start ``command`` in its own session, writing to ``log``; it dies with us.

    Its own session, so that the terminal's Ctrl-C reaches only the supervisor, which stops in order.
    """
    return subprocess.Popen(
        list(command),
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        preexec_fn=die_with_parent(death_signal),
        **user,
    )


@dataclass
class Child:
    """One supervised process: how it starts, stops, and when it may be started again."""

    name: str
    start_process: Callable[[], subprocess.Popen[bytes]]
    stop_signal: signal.Signals = signal.SIGTERM
    grace: float = 10.0  # seconds to stop by itself
    log_path: Path | None = None
    tier: int = 0  # higher tiers need lower ones: started later, stopped earlier
    process: subprocess.Popen[bytes] | None = None
    failures: int = 0
    started_at: float = 0.0
    start_again_at: float | None = None
    asked: bool = False

    def start(self) -> None:
        """Start it, now."""
        self.process = self.start_process()
        self.started_at = time.monotonic()
        self.start_again_at = None
        self.asked = False

    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    def exit_words(self) -> str:
        """How it ended, for a person."""
        code = self.process.returncode if self.process else None
        if code is not None and code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def note_death(self, now: float) -> float:
        """Plan the next start; returns the back-off in seconds (1, 2, 4 ... 30)."""
        if now - self.started_at > _STEADY_AFTER:
            self.failures = 0
        delay = self.note_failed_start(now)
        self.end_group()
        return delay

    def note_failed_start(self, now: float) -> float:
        """Plan another try; returns the back-off in seconds."""
        self.failures += 1
        delay = min(_LONGEST_BACK_OFF, 2.0 ** min(self.failures - 1, 10))
        self.start_again_at = now + delay
        return delay

    def ask_to_stop(self) -> None:
        """Send the stop signal, once."""
        if self.process is not None and self.alive() and not self.asked:
            self.asked = True
            self.process.send_signal(self.stop_signal)

    def stop(self) -> None:
        """Ask, wait for the grace, then end the whole group."""
        if self.process is None:
            return
        self.ask_to_stop()
        since = time.monotonic()
        # Short waits: a second Ctrl-C shortens the grace while this goes on.
        while self.alive() and time.monotonic() - since < self.grace:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)
        self.end_group()
        self.process.wait()

    def end_group(self) -> None:
        """Nothing of the child's session may outlive it."""
        if self.process is not None:
            # Already gone is fine (macOS says EPERM for a zombie's group).
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def last_words(self, lines: int = 8) -> str:
        """The end of its log."""
        if self.log_path is None:
            return ""
        try:
            text = self.log_path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])
