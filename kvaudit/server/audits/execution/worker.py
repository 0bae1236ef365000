"""Coordinates a worker's two halves: an event loop that probes, and the calling thread that writes.

The loop lives in a thread of its own (`probe_thread`) and never touches the database; events come over a queue. The
calling thread writes finished runs in batches, renews leases, tells progress, keeps markers and tokens and passes on
cancellations, so a slow node delays nobody's results. A loop that stands still
keeps its leases for one lease more: then its runs are begun again, each in a loop of its own, and the one that
stands still there ends as *error*.
"""

from __future__ import annotations

import json
import logging
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from billiard.exceptions import SoftTimeLimitExceeded
from django.db import InterfaceError, OperationalError, close_old_connections

from kvaudit.auditor.runner import CheckFinished, CheckStarted, NodeRead
from kvaudit.auditor.verdict import Result
from kvaudit.server import clock
from kvaudit.server.audits import options
from kvaudit.server.audits.evidence import live_markers
from kvaudit.server.audits.execution import claims, recording
from kvaudit.server.audits.execution import permissions as permitting
from kvaudit.server.audits.execution.claimed_run import ClaimedRun, errors
from kvaudit.server.audits.execution.outcome import Finished, Observed
from kvaudit.server.audits.execution.probe_thread import LoopLeft, ProbeThread, abandon
from kvaudit.server.audits.models import Kind
from kvaudit.server.audits.state import earlier_runs

log = logging.getLogger(__name__)
Returned = TypeVar("Returned")

WRITE_AT_ONCE = 25
"""Finished runs per transaction: few enough that the ledger's chain is never held for long."""

STOOD_STILL = (
    "The audit's event loop stood still: something that this target was asked never gave the loop back, so the run "
    "was given up."
)

STOP_GRACE = 10.0
ACTIVE_BEAT = 1.0
"""Seconds between heartbeats while prompts are being sent."""

KEEP_SECONDS = 5.0
"""Between two writings of the markers that a run has planted so far."""


class RunCoordinator:
    """The calling thread's part: writes results, renews leases, heeds pauses and cancellations."""

    def __init__(self, claimed_runs: Sequence[ClaimedRun]) -> None:
        self.inbox: queue.SimpleQueue[tuple[ClaimedRun, Any, datetime]] = queue.SimpleQueue()
        self.open = {claimed.run.pk: claimed for claimed in claimed_runs if claimed.target is not None}
        self.done: list[ClaimedRun] = [claimed for claimed in claimed_runs if claimed.target is None]
        self.finished = 0
        self.next_keeping = 0.0
        self.next_beat = time.monotonic() + self._between_beats()
        self.probers: list[ProbeThread] = []

    def run(self) -> int:
        self._begin(list(self.open.values()))
        try:
            self._until_done()
        except SoftTimeLimitExceeded:
            for claimed in self.open.values():
                claimed.out_of_time = "The time that a worker may take for one run was over."
            self._stop_all("out of time")
            self._until_done(within=STOP_GRACE)
        finally:
            self._stop_all("lost")
        until = time.monotonic() + STOP_GRACE
        for prober in self.probers:
            prober.join(max(0.0, until - time.monotonic()))
            abandon(prober)
        return self.finished

    def _begin(self, claimed_runs: Sequence[ClaimedRun]) -> None:
        """A loop for these runs."""
        prober = ProbeThread(claimed_runs, self.inbox)
        self.probers.append(prober)
        prober.start()

    def _until_done(self, within: float | None = None) -> None:
        until = None if within is None else time.monotonic() + within
        while self.open or self.done:
            if until is not None and time.monotonic() > until:
                break
            self._take_event()
            if len(self.done) >= WRITE_AT_ONCE or (self.done and self.inbox.empty()):
                self._write()
            if time.monotonic() >= self.next_beat:
                self._heartbeat()
            for prober in list(self.probers):
                self._check_thread(prober)

    def _check_thread(self, prober: ProbeThread) -> None:
        """End what a dead loop left, and take its runs from one that has stood still for a lease."""
        if not prober.is_alive() and self.inbox.empty():
            self.probers.remove(prober)
            for claimed in self._runs_left_of(prober):
                self._note_event(claimed, LoopLeft("The audit's event loop ended early."), clock.now())
        elif prober.standstill() > options.lease_seconds():
            self._take_runs_from(prober)

    def _take_runs_from(self, prober: ProbeThread) -> None:
        """One coroutine that never yields holds up every run of its loop, of whatever team: which one it is cannot be
        told from outside, so runs that only read are begun again apart. Alone, it was this one."""
        left = self._runs_left_of(prober)
        log.error("an event loop stood still with %d runs, at:\n%s", len(left), prober.where())
        self.probers.remove(prober)
        abandon(prober)
        for claimed in left:
            if len(prober.claimed_runs) == 1 or claimed.permission is not None:
                self._note_event(claimed, LoopLeft(STOOD_STILL), clock.now())
            else:
                again = self.open[claimed.run.pk] = claimed.again()
                self._begin([again])
            claimed.stop = "stood still"  # should the old loop wake up, it must send nothing more

    def _runs_left_of(self, prober: ProbeThread) -> list[ClaimedRun]:
        return [claimed for claimed in prober.claimed_runs if self.open.get(claimed.run.pk) is claimed]

    def _take_event(self) -> None:
        """Wait for an event, but neither past the next heartbeat nor while something is to be written."""
        # What is done waits a moment for more: one transaction for several runs costs little more than for one.
        wait = 0.05 if self.done else max(0.0, min(self.next_beat - time.monotonic(), 1.0))
        try:
            claimed, event, moment = self.inbox.get(timeout=wait)
        except queue.Empty:
            return
        self._note_event(claimed, event, moment)
        while len(self.done) < WRITE_AT_ONCE:
            try:
                self._note_event(*self.inbox.get_nowait())
            except queue.Empty:
                return

    def _note_event(self, claimed: ClaimedRun, event: Any, moment: datetime) -> None:
        if self.open.get(claimed.run.pk) is not claimed:
            return  # it was lost, or begun again: what an old loop still says of it counts no more
        if isinstance(event, NodeRead):
            claimed.nodes.append(event.node)
            claimed.read_at = moment
            claimed.progress["read"] = len(claimed.nodes)
        elif isinstance(event, CheckStarted):
            claimed.progress["checks"][event.check] = "running"
        elif isinstance(event, CheckFinished):
            self._result(claimed, event.result, moment)
        elif isinstance(event, LoopLeft):
            self.open.pop(claimed.run.pk, None)
            there = {observed.result.check for observed in claimed.results}
            missing = [check for check in claimed.run.checks if check not in there]
            claimed.results += errors(
                missing, event.problem or "The audit ended without a result of this check."
            )
            if claimed.permission is not None:
                self._keep_markers(claimed)
            self.done.append(claimed)

    def _result(self, claimed: ClaimedRun, result: Result, moment: datetime) -> None:
        measures, markers = live_markers.in_measures(dict(result.measures))
        claimed.planted += live_markers.unknown(markers, claimed.planted)
        if result.check == "concurrency" and claimed.permission is not None:
            measures["pooled"] = retry_database(
                lambda: earlier_runs.pooled(claimed.run.deployment, measures, claimed.changed_at)
            )
        result = replace(result, measures=measures)
        unfinished = claimed.cut_short(result)
        observed = Observed(result, moment, unfinished=unfinished)
        claimed.results.append(observed)
        claimed.progress["checks"][result.check] = "cancelled" if unfinished else result.verdict.value
        if claimed.run.kind == Kind.ACTIVE and not unfinished:
            self._write_partly(claimed, observed)

    def _write_partly(self, claimed: ClaimedRun, observed: Observed) -> None:
        if not retry_database(lambda: recording.record_partly(claimed.claim, observed, claimed.nodes)):
            self._lose(claimed)

    def _write(self) -> None:
        """Write the next batch; it leaves ``done`` only afterwards, so that an interruption loses nothing."""
        batch = self.done[:WRITE_AT_ONCE]
        mine = [claimed for claimed in batch if claimed.stop != "lost"]
        try:
            self.finished += len(
                retry_database(lambda: recording.finish([claimed.finished() for claimed in mine]))
            )
        except (OperationalError, InterfaceError, SoftTimeLimitExceeded):
            raise
        except Exception:
            # One run's answers that the database refuses must not cost the others their results.
            log.exception("writing %d runs together failed; each is written alone", len(mine))
            for claimed in mine:
                self.finished += self._write_alone(claimed)
        del self.done[: len(batch)]

    def _write_alone(self, claimed: ClaimedRun) -> int:
        try:
            return len(retry_database(lambda: recording.finish([claimed.finished()])))
        except (OperationalError, InterfaceError, SoftTimeLimitExceeded):
            raise
        except Exception as fault:
            log.exception("the results of run %s cannot be written", claimed.run.pk)
            problem = (
                f"The results could not be stored ({type(fault).__name__}); the log of the worker says why."
            )
            bare = Finished(claimed.claim, errors(claimed.run.checks, problem))
            return len(retry_database(lambda: recording.finish([bare])))

    def _heartbeat(self) -> None:
        self.next_beat = time.monotonic() + self._between_beats()
        claimed_runs = [*self.open.values(), *self.done]
        news: dict[int, str] = {}
        for claimed in claimed_runs:
            if claimed.permission is not None:
                claimed.progress["silent"] = claimed.spent.silent
            shown = json.dumps(claimed.progress)
            if shown != claimed.reported_progress:
                news[claimed.run.pk] = claimed.reported_progress = shown
        spent = {
            claimed.run.pk: claimed.tokens_spent for claimed in claimed_runs if claimed.permission is not None
        }
        began = time.monotonic()
        ours = retry_database(
            lambda: claims.heartbeat([claimed.claim for claimed in claimed_runs], news, spent)
        )
        for claimed in claimed_runs:
            if claimed.run.pk not in ours:
                self._lose(claimed)
                continue
            claimed.confirmed = began
            if ours[claimed.run.pk] and not claimed.stop:
                claimed.stop = "cancelled"
            if claimed.permission is not None:
                self._heed_pauses(claimed)

    def _heed_pauses(self, claimed: ClaimedRun) -> None:
        """What only active runs need: pauses and windows heeded, markers kept."""
        claimed.stop_sending = claimed.stop_sending or retry_database(
            lambda: permitting.why_stop(claimed.run)
        )
        if time.monotonic() >= self.next_keeping:
            self.next_keeping = time.monotonic() + KEEP_SECONDS
            self._keep_markers(claimed)

    def _keep_markers(self, claimed: ClaimedRun) -> None:
        planted = list(claimed.planted)
        if len(planted) > claimed.markers_stored:
            retry_database(lambda: live_markers.keep(claimed.run, planted))
            claimed.markers_stored = len(planted)

    def _between_beats(self) -> float:
        """A pause takes effect within a second."""
        active = any(claimed.permission is not None for claimed in self.open.values())
        return min(options.heartbeat_seconds(), ACTIVE_BEAT) if active else options.heartbeat_seconds()

    def _lose(self, claimed: ClaimedRun) -> None:
        """The run belongs to somebody else: stop probing, write nothing."""
        log.warning("run %s was given to another worker", claimed.run.pk)
        claimed.stop = "lost"
        self.open.pop(claimed.run.pk, None)

    def _stop_all(self, why: str) -> None:
        for claimed in self.open.values():
            claimed.stop = claimed.stop or why


def retry_database(act: Callable[[], Returned]) -> Returned:
    """Do it again while the database is away, for as long as a lease lasts: a restart of PostgreSQL
    should cost seconds, not results. After that the run is lost anyway, and is retried."""
    until = time.monotonic() + options.lease_seconds()
    pause = 0.1
    while True:
        try:
            return act()
        except (OperationalError, InterfaceError) as fault:
            close_old_connections()
            if time.monotonic() + pause > until:
                raise
            log.warning("the database does not answer, trying again: %s", fault)
            time.sleep(pause)
            pause = min(pause * 2, 2.0)
