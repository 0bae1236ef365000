"""A worker's two halves: an event loop that probes, and the calling thread that writes.

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
from kvaudit.server.audits.execution.claimed_run import Work, errors
from kvaudit.server.audits.execution.outcome import Finished, Observed
from kvaudit.server.audits.execution.probe_thread import Ended, Prober, abandon
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


class Desk:
    """The calling thread's part."""

    def __init__(self, works: Sequence[Work]) -> None:
        self.inbox: queue.SimpleQueue[tuple[Work, Any, datetime]] = queue.SimpleQueue()
        self.open = {work.run.pk: work for work in works if work.target is not None}
        self.done: list[Work] = [work for work in works if work.target is None]
        self.finished = 0
        self.next_keeping = 0.0
        self.next_beat = time.monotonic() + self._between_beats()
        self.probers: list[Prober] = []

    def run(self) -> int:
        self._begin(list(self.open.values()))
        try:
            self._until_done()
        except SoftTimeLimitExceeded:
            for work in self.open.values():
                work.over = "The time that a worker may take for one run was over."
            self._stop_all("out of time")
            self._until_done(within=STOP_GRACE)
        finally:
            self._stop_all("lost")
        until = time.monotonic() + STOP_GRACE
        for prober in self.probers:
            prober.join(max(0.0, until - time.monotonic()))
            abandon(prober)
        return self.finished

    def _begin(self, works: Sequence[Work]) -> None:
        """A loop for these runs."""
        prober = Prober(works, self.inbox)
        self.probers.append(prober)
        prober.start()

    def _until_done(self, within: float | None = None) -> None:
        until = None if within is None else time.monotonic() + within
        while self.open or self.done:
            if until is not None and time.monotonic() > until:
                break
            self._take()
            if len(self.done) >= WRITE_AT_ONCE or (self.done and self.inbox.empty()):
                self._write()
            if time.monotonic() >= self.next_beat:
                self._beat()
            for prober in list(self.probers):
                self._look_at(prober)

    def _look_at(self, prober: Prober) -> None:
        """End what a dead loop left, and take its runs from one that has stood still for a lease."""
        if not prober.is_alive() and self.inbox.empty():
            self.probers.remove(prober)
            for work in self._left_of(prober):
                self._note(work, Ended("The audit's event loop ended early."), clock.now())
        elif prober.standstill() > options.lease_seconds():
            self._take_from(prober)

    def _take_from(self, prober: Prober) -> None:
        """One coroutine that never yields holds up every run of its loop, of whatever team: which one it is cannot be
        told from outside, so runs that only read are begun again apart. Alone, it was this one."""
        left = self._left_of(prober)
        log.error("an event loop stood still with %d runs, at:\n%s", len(left), prober.where())
        self.probers.remove(prober)
        abandon(prober)
        for work in left:
            if len(prober.works) == 1 or work.permission is not None:
                self._note(work, Ended(STOOD_STILL), clock.now())
            else:
                again = self.open[work.run.pk] = work.again()
                self._begin([again])
            work.stop = "stood still"  # should the old loop wake up, it must send nothing more

    def _left_of(self, prober: Prober) -> list[Work]:
        return [work for work in prober.works if self.open.get(work.run.pk) is work]

    def _take(self) -> None:
        """Wait for an event, but neither past the next heartbeat nor while something is to be written."""
        wait = 0.05 if self.done else max(0.0, min(self.next_beat - time.monotonic(), 1.0))
        try:
            work, event, moment = self.inbox.get(timeout=wait)
        except queue.Empty:
            return
        self._note(work, event, moment)
        while len(self.done) < WRITE_AT_ONCE:
            try:
                self._note(*self.inbox.get_nowait())
            except queue.Empty:
                return

    def _note(self, work: Work, event: Any, moment: datetime) -> None:
        if self.open.get(work.run.pk) is not work:
            return  # it was lost, or begun again: what an old loop still says of it counts no more
        if isinstance(event, NodeRead):
            work.nodes.append(event.node)
            work.read_at = moment
            work.shown["read"] = len(work.nodes)
        elif isinstance(event, CheckStarted):
            work.shown["checks"][event.check] = "running"
        elif isinstance(event, CheckFinished):
            self._result(work, event.result, moment)
        elif isinstance(event, Ended):
            self.open.pop(work.run.pk, None)
            there = {observed.result.check for observed in work.results}
            missing = [check for check in work.run.checks if check not in there]
            work.results += errors(
                missing, event.problem or "The audit ended without a result of this check."
            )
            if work.permission is not None:
                self._keep_markers(work)
            self.done.append(work)

    def _result(self, work: Work, result: Result, moment: datetime) -> None:
        measures, markers = live_markers.in_measures(dict(result.measures))
        work.planted += live_markers.unknown(markers, work.planted)
        if result.check == "concurrency" and work.permission is not None:
            measures["pooled"] = patiently(
                lambda: earlier_runs.pooled(work.run.deployment, measures, work.changed_at)
            )
        result = replace(result, measures=measures)
        unfinished = work.cut_short(result)
        observed = Observed(result, moment, unfinished=unfinished)
        work.results.append(observed)
        work.shown["checks"][result.check] = "cancelled" if unfinished else result.verdict.value
        if work.run.kind == Kind.ACTIVE and not unfinished:
            self._write_partly(work, observed)

    def _write_partly(self, work: Work, observed: Observed) -> None:
        if not patiently(lambda: recording.record_partly(work.claim, observed, work.nodes)):
            self._lose(work)

    def _write(self) -> None:
        """Write the next batch; it leaves ``done`` only afterwards, so that an interruption loses nothing."""
        batch = self.done[:WRITE_AT_ONCE]
        mine = [work for work in batch if work.stop != "lost"]
        try:
            self.finished += len(patiently(lambda: recording.finish([work.finished() for work in mine])))
        except (OperationalError, InterfaceError, SoftTimeLimitExceeded):
            raise
        except Exception:
            # One run's answers that the database refuses must not cost the others their results.
            log.exception("writing %d runs together failed; each is written alone", len(mine))
            for work in mine:
                self.finished += self._write_alone(work)
        del self.done[: len(batch)]

    def _write_alone(self, work: Work) -> int:
        try:
            return len(patiently(lambda: recording.finish([work.finished()])))
        except (OperationalError, InterfaceError, SoftTimeLimitExceeded):
            raise
        except Exception as fault:
            log.exception("the results of run %s cannot be written", work.run.pk)
            problem = (
                f"The results could not be stored ({type(fault).__name__}); the log of the worker says why."
            )
            bare = Finished(work.claim, errors(work.run.checks, problem))
            return len(patiently(lambda: recording.finish([bare])))

    def _beat(self) -> None:
        self.next_beat = time.monotonic() + self._between_beats()
        works = [*self.open.values(), *self.done]
        news: dict[int, str] = {}
        for work in works:
            if work.permission is not None:
                work.shown["silent"] = work.spent.silent
            shown = json.dumps(work.shown)
            if shown != work.told:
                news[work.run.pk] = work.told = shown
        spent = {work.run.pk: work.tokens_spent for work in works if work.permission is not None}
        began = time.monotonic()
        ours = patiently(lambda: claims.heartbeat([work.claim for work in works], news, spent))
        for work in works:
            if work.run.pk not in ours:
                self._lose(work)
                continue
            work.confirmed = began
            if ours[work.run.pk] and not work.stop:
                work.stop = "cancelled"
            if work.permission is not None:
                self._look_after(work)

    def _look_after(self, work: Work) -> None:
        """What only active runs need: pauses and windows heeded, markers kept."""
        work.why = work.why or patiently(lambda: permitting.why_stop(work.run))
        if time.monotonic() >= self.next_keeping:
            self.next_keeping = time.monotonic() + KEEP_SECONDS
            self._keep_markers(work)

    def _keep_markers(self, work: Work) -> None:
        planted = list(work.planted)
        if len(planted) > work.kept:
            patiently(lambda: live_markers.keep(work.run, planted))
            work.kept = len(planted)

    def _between_beats(self) -> float:
        """A pause takes effect within a second."""
        active = any(work.permission is not None for work in self.open.values())
        return min(options.heartbeat_seconds(), ACTIVE_BEAT) if active else options.heartbeat_seconds()

    def _lose(self, work: Work) -> None:
        """The run belongs to somebody else: stop probing, write nothing."""
        log.warning("run %s was given to another worker", work.run.pk)
        work.stop = "lost"
        self.open.pop(work.run.pk, None)

    def _stop_all(self, why: str) -> None:
        for work in self.open.values():
            work.stop = work.stop or why


def patiently(act: Callable[[], Returned]) -> Returned:
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
