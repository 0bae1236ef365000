"""Ends what an earlier start left behind when it was killed with -9 and the kernel did not help.

Every child leads a process group of its own, so the group's number is enough to find what is left,
and the leader's start time tells it from a stranger that got the same number.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from kvaudit.server.ops.process import Child


def start_time(pid: int) -> str:
    """When the process started, in the kernel's own words; empty when it is gone or not known."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]  # field 22 of proc(5), counted behind the name


def remember(path: Path, children: Iterable[Child]) -> None:
    """Write down the groups that run now."""
    rows = [
        {"name": child.name, "group": child.process.pid, "started": start_time(child.process.pid)}
        for child in children
        if child.process is not None and child.alive()
    ]
    half_done = path.with_suffix(".new")
    half_done.write_text(json.dumps(rows), encoding="ascii")
    half_done.rename(path)


def end_leftovers(path: Path, patience: float = 15.0) -> list[str]:
    """End the groups written down that still live; returns their names.

    They have been told to stop by the kernel already, so most are on their way: wait up to
    ``patience`` seconds, then kill.
    """
    try:
        rows = json.loads(path.read_text(encoding="ascii"))
        left = {str(row["name"]): (int(row["group"]), str(row["started"])) for row in rows}
    except (OSError, ValueError, TypeError, KeyError):
        return []
    left = {name: (group, started) for name, (group, started) in left.items() if _lives(group, started)}
    names = sorted(left)
    for name, (group, _) in left.items():
        _signal(group, signal.SIGINT if name == "postgres" else signal.SIGTERM)
    deadline = time.monotonic() + patience
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = {name: row for name, row in left.items() if _lives(*row)}
    for group, _ in left.values():
        _signal(group, signal.SIGKILL)
    path.unlink(missing_ok=True)
    return names


def _lives(group: int, started: str) -> bool:
    now = start_time(group)
    if now:
        return now == started
    try:
        # The kernel gives no number away while a group has it: without its leader it is still ours.
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return _group_has_members(group)


def _group_has_members(group: int) -> bool:
    """Whether anyone but zombies is left (without /proc: assume so)."""
    proc = Path("/proc")
    if not (proc / "self").exists():
        return True
    for entry in proc.iterdir():
        if entry.name.isdigit():
            try:
                fields = (
                    (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                )
            except OSError:
                continue
            if fields[2] == str(group) and fields[0] != "Z":
                return True
    return False


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
