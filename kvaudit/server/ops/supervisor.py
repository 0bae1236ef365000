"""Starts children in tiers, restarts the dead with back-off, stops all in the opposite order."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from kvaudit.server import disk
from kvaudit.server.ops.process import Child, catches_interrupt
from kvaudit.server.ops.progress import Progress
from kvaudit.server.ops.stale_processes import remember

LOOK_AT_DISKS = 2.0
"""Seconds between two looks at how much room is left."""


class Stopped(Exception):
    """Somebody asked to stop while something was awaited."""


class StartFault(RuntimeError):
    """A child did not come up; the text says which and shows the end of its log."""


class Supervisor:
    """Children in the order of their start; call everything from the main thread."""

    def __init__(
        self, progress: Progress, register: Path, *, with_parent: bool = False, disks: Sequence[Path] = ()
    ) -> None:
        self.progress = progress
        self.disks = list(disks)  # folders whose disks are looked at
        self._full: set[Path] = set()
        self._said: dict[Path, str] = {}
        self._next_look = 0.0
        self._unwritten = False  # the register does not hold what runs
        self.children: list[Child] = []
        self._register = register
        self._stop = threading.Event()
        self._signals = 0
        self._parent = os.getppid()
        # Only under make: a shell may end and leave us running (nohup).
        self._parent_caught_interrupt = with_parent and catches_interrupt(self._parent)

    def listen(self) -> None:
        """Ctrl-C, SIGTERM and a closed terminal stop everything; a second signal hurries."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._stop.set()
        if self._signals > 1:
            for child in self.children:
                child.grace = min(child.grace, 1.0)

    def asked_to_stop(self) -> bool:
        """Whether to stop: a signal, or ``make`` interrupted without telling us."""
        if self._parent_caught_interrupt and not catches_interrupt(self._parent):
            self._stop.set()
        return self._stop.is_set()

    def start(self, child: Child) -> Child:
        """Start one more child and watch it from now on."""
        if self.asked_to_stop():
            raise Stopped
        child.start()
        self.children.append(child)
        self._remember()
        return child

    def _remember(self) -> None:
        """Write down what runs, for a start after a crash; without it the kernel's own signal has to do."""
        try:
            remember(self._register, self.children)
            self._unwritten = False
        except OSError as error:
            if not self._unwritten:
                self.progress.say(f"{self._register} cannot be written ({error.strerror})")
            self._unwritten = True

    def wait(
        self, child: Child, ready: Callable[[], bool], seconds: float = 60.0, why: Callable[[], str] = str
    ) -> None:
        """Wait until ``ready``; raises `StartFault` when it takes too long (with ``why``) or any child
        dies meanwhile."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self.asked_to_stop():
                raise Stopped
            for each in self.children:
                if not each.alive():
                    raise StartFault(self._fault(each, each.exit_words()))
            if time.monotonic() > deadline:
                reason = why()
                what = f"was not ready within {seconds:.0f} s" + (f" ({reason})" if reason else "")
                raise StartFault(self._fault(child, what))
            self._stop.wait(0.05)

    def _fault(self, child: Child, what: str) -> str:
        words = child.last_words()
        where = f" The end of {child.log_path}:\n{words}" if words else ""
        return f"{child.name} {what}.{where}"

    def watch(self, also: Callable[[], None] = lambda: None) -> None:
        """Until asked to stop: start the dead again, and say so; ``also`` is called each time round. A full disk
        ends nothing for good: what cannot be done now is tried again, for as long as it takes."""
        while not self.asked_to_stop():
            for child in self.children:
                self._look_after(child, time.monotonic())
            self._look_at_disks(time.monotonic())
            try:
                also()
            except OSError as error:
                self.progress.say(f"not done: {error}")
            self._stop.wait(0.3)

    def _look_at_disks(self, now: float) -> None:
        """Say when a disk runs out of room, and start what waits at once when it has some again."""
        if now < self._next_look:
            return
        self._next_look = now + LOOK_AT_DISKS
        if self._unwritten:
            self._remember()
        for folder in self.disks:
            found = disk.room(folder)
            said = disk.sentence(found) if found else ""
            was_full, full = folder in self._full, bool(found and found.full)
            (self._full.add if full else self._full.discard)(folder)
            if was_full and not full:
                self.progress.say(f"the disk of {folder} has room again")
                for child in self.children:
                    if child.start_again_at is not None:
                        child.start_again_at, child.failures = now, 0
            kind = said.partition("(")[0]
            if kind and kind != self._said.get(folder):
                self.progress.say(said)
            self._said[folder] = kind

    def _look_after(self, child: Child, now: float) -> None:
        if child.alive():
            return
        if child.start_again_at is None:
            words = child.exit_words()
            delay = child.note_death(now)
            self.progress.say(
                f"{child.name} {words}; starting it again in {delay:.0f} s (log: {child.log_path})"
            )
        elif now >= child.start_again_at:
            try:
                child.start()
            except (OSError, subprocess.SubprocessError) as error:
                delay = child.note_failed_start(now)
                self.progress.say(f"{child.name} cannot be started ({error}); trying again in {delay:.0f} s")
                return
            self._remember()
            self.progress.say(f"{child.name} started again")

    def stop(self) -> None:
        """Stop the tiers from the last to the first; within a tier all at once."""
        for tier in sorted({child.tier for child in self.children}, reverse=True):
            group = [child for child in self.children if child.tier == tier]
            for child in group:
                child.ask_to_stop()
            for child in group:
                child.stop()
        self._register.unlink(missing_ok=True)
