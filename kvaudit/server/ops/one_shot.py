"""Runs commands to their end while everything else is being started."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kvaudit.server.ops.process import die_with_parent
from kvaudit.server.ops.state import REPOSITORY


@dataclass(frozen=True, slots=True)
class OneShot:
    """How a command ended. ``stopped``: it was killed because somebody asked us to stop."""

    code: int
    out: str
    errors: str
    stopped: bool


def manage(arguments: Sequence[str], env: Mapping[str, str], asked_to_stop: Callable[[], bool]) -> OneShot:
    """Run ``manage.py ARGUMENTS`` to its end; it is killed when we are asked to stop, or die."""
    process = subprocess.Popen(
        [sys.executable, "-m", "django", *arguments],
        env=dict(env),
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=die_with_parent(signal.SIGKILL),
    )
    stopped = False
    while True:
        try:
            out, errors = process.communicate(timeout=0.1)
            return OneShot(process.returncode, out, errors, stopped)
        except subprocess.TimeoutExpired:
            stopped = stopped or asked_to_stop()
            if stopped:
                process.kill()
