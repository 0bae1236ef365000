"""Runs the event loop that probes in a thread of its own, and notices when it stands still."""

from __future__ import annotations

import asyncio
import logging
import queue
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kvaudit.auditor import runner
from kvaudit.server import clock
from kvaudit.server.audits.execution.claimed_run import ClaimedRun

log = logging.getLogger(__name__)

TICK = 0.2
"""Seconds between two signs of life of a loop."""

LONGEST_LOOK = 1.0
"""Of the time between two looks, at most so much is taken for a standstill: while the whole process was frozen,
or starved, the loop could not have ticked either."""

RECYCLE = 0x9B
"""The exit code with which a process of Celery's pool asks to be replaced (billiard's EX_RECYCLE)."""

_abandoned: list[threading.Thread] = []


@dataclass(frozen=True)
class LoopLeft:
    """The loop has left this run; ``problem`` when the runner itself broke."""

    problem: str = ""


class ProbeThread(threading.Thread):
    """Runs every target in one event loop and puts (work, event, moment) into the inbox."""

    def __init__(
        self, claimed_runs: Sequence[ClaimedRun], inbox: queue.SimpleQueue[tuple[ClaimedRun, Any, datetime]]
    ) -> None:
        super().__init__(name="prober", daemon=True)
        self.claimed_runs = tuple(claimed_runs)
        self._inbox = inbox
        self._ticks = 0  # written by the loop alone
        self._seen = -1
        self._looked = time.monotonic()
        self._still = 0.0

    def run(self) -> None:
        asyncio.run(self._all())

    def standstill(self) -> float:
        """For how many seconds the loop has shown no sign of life; the coordinator alone asks, every second or
        so."""
        now, ticks = time.monotonic(), self._ticks
        passed, self._looked = now - self._looked, now
        self._still = self._still + min(passed, LONGEST_LOOK) if ticks == self._seen else 0.0
        self._seen = ticks
        return self._still

    def where(self) -> str:
        """The lines of code that the thread is at; "" when it is gone."""
        frame = sys._current_frames().get(self.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame is not None else ""

    async def _all(self) -> None:
        ticking = asyncio.create_task(self._tick())
        await asyncio.gather(*(self._one(claimed) for claimed in self.claimed_runs))
        ticking.cancel()

    async def _tick(self) -> None:
        while True:
            self._ticks += 1
            await asyncio.sleep(TICK)

    async def _one(self, claimed: ClaimedRun) -> None:
        ended = LoopLeft()
        try:
            assert claimed.target is not None
            events = runner.run(
                claimed.target,
                claimed.run.checks,
                budget=claimed.budget,
                history=claimed.history,
                cancelled=lambda: bool(claimed.stop),
                permission=claimed.permission,
            )
            async for event in events:
                self._inbox.put((claimed, event, clock.now()))
        except Exception as fault:
            # A defect of ours: the run ends as error and the other runs go on.
            log.exception("run %s broke", claimed.run.pk)
            ended = LoopLeft(f"The audit broke inside kvaudit ({type(fault).__name__}).")
        self._inbox.put((claimed, ended, clock.now()))


def abandon(prober: ProbeThread) -> None:
    """Nobody waits for this loop any more. While it lives, it holds memory, sockets and perhaps a processor."""
    if prober.is_alive():
        _abandoned.append(prober)


def leave_if_abandoned() -> None:
    """At the end of a task: a process with a loop that never came back is replaced by its pool. The message counts as
    lost and comes again, which finds nothing to claim: the runs are written."""
    _abandoned[:] = [thread for thread in _abandoned if thread.is_alive()]
    if _abandoned:
        log.error("this process is replaced: %d event loops never came back", len(_abandoned))
        sys.exit(RECYCLE)
