"""A worker's side of a task: claimed runs are probed in one event loop, written by the calling thread.

The loop lives in a thread of its own and never touches the database; events come over a queue. The
calling thread writes finished runs in batches, renews leases, tells progress and passes on
cancellations, so a slow node delays nobody's results.
"""

from __future__ import annotations

import asyncio
import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from billiard.exceptions import SoftTimeLimitExceeded
from django.db import InterfaceError, OperationalError, close_old_connections
from django.utils import timezone

from kvaudit import runner
from kvaudit.audits import claiming, options, recording, replaying, windows
from kvaudit.audits.claiming import Claim
from kvaudit.audits.history import histories
from kvaudit.audits.models import Kind, Run, RunState, Trigger
from kvaudit.audits.recording import Finished, Observed
from kvaudit.checks.contract import History, NodeSeen
from kvaudit.fleet.loading import load_targets, probes_paused
from kvaudit.fleet.models import Node
from kvaudit.runner import Budget, CheckFinished, CheckStarted, NodeRead
from kvaudit.targets import Target
from kvaudit.verdict import Result, Verdict

log = logging.getLogger(__name__)
Returned = TypeVar("Returned")

WRITE_AT_ONCE = 25
"""Finished runs per transaction: few enough that the ledger's chain is never held for long."""

PASSIVE_SECONDS = 120.0
ACTIVE_SECONDS = 1500.0  # below the tasks' soft limit
STOP_GRACE = 10.0


@dataclass
class Work:
    """One claimed run while it is being worked on."""

    claim: Claim
    run: Run
    target: Target | None
    history: History | None
    rows: dict[str, Node]
    budget: Budget
    nodes: list[NodeSeen] = field(default_factory=list)
    results: list[Observed] = field(default_factory=list)
    read_at: datetime = field(default_factory=timezone.now)
    stop: str = ""  # why the loop should leave this run: cancelled, lost or out of time
    shown: dict[str, Any] = field(default_factory=dict)
    told: str = ""

    def finished(self) -> Finished:
        return Finished(
            self.claim,
            self.results,
            [(self.rows[node.name], node) for node in self.nodes if node.name in self.rows],
            self.read_at,
        )


@dataclass(frozen=True)
class Ended:
    """The loop has left this run; ``problem`` when the runner itself broke."""

    problem: str = ""


def execute(run_ids: Iterable[int], *, kind: Kind) -> int:
    """Claim these runs and work on those that could be claimed; returns how many were finished."""
    wanted = list(run_ids) if kind == Kind.PASSIVE else _allowed_now(run_ids)
    claims = claiming.claim(wanted, kind=kind)
    if not claims:
        return 0
    works = _load(claims)
    return _Desk(works).run()


def _allowed_now(run_ids: Iterable[int]) -> list[int]:
    """Active runs whose window is open and whose probes are not paused; the others wait, and become
    *missed* if that lasts longer than they may."""
    now = timezone.now()
    allowed = []
    for run in Run.objects.select_related("deployment", "plan").filter(pk__in=list(run_ids)):
        own = run.plan.windows if run.plan else []
        opening = windows.next_open(now, run.deployment.windows, own)
        if run.trigger == Trigger.MANUAL:
            opening = now  # a person who asks now has seen the clock
        if opening is not None and probes_paused(run.deployment):
            opening = max(opening, now + timedelta(seconds=60))
        if opening == now:
            allowed.append(run.pk)
        else:
            later = opening or run.expires_at
            Run.objects.filter(pk=run.pk, state=RunState.QUEUED).update(
                not_before=later, rung_at=None, rings=0
            )
    return allowed


def _load(claims: Sequence[Claim]) -> list[Work]:
    runs = Run.objects.select_related("deployment__team", "plan").in_bulk([each.run_id for each in claims])
    deployments = {run.deployment_id: run.deployment for run in runs.values()}
    known = histories(deployments.values())
    rows: dict[int, dict[str, Node]] = {pk: {} for pk in deployments}
    for node in Node.objects.current().filter(deployment__in=deployments):
        rows[node.deployment_id][node.name] = node
    targets, unable = load_targets(deployments.values())
    works = []
    replaying.draw_seeds(runs.values())
    for each in claims:
        run = runs[each.run_id]
        target = targets.get(run.deployment_id)
        work = Work(each, run, target, known[run.deployment_id], rows[run.deployment_id], budget_of(run))
        if target is None:
            work.results = _errors(run.checks, unable[run.deployment_id])
        work.shown = {
            "nodes": len(work.rows),
            "read": 0,
            "checks": dict.fromkeys(run.checks, "waiting"),
        }
        works.append(work)
    return works


def budget_of(run: Run) -> Budget:
    """The plan's ceilings, within what a task may take."""
    most = PASSIVE_SECONDS if run.kind == Kind.PASSIVE else ACTIVE_SECONDS
    default = Budget()
    seconds = run.plan.budget_seconds if run.plan and run.plan.budget_seconds else None
    tokens = run.plan.budget_tokens if run.plan and run.plan.budget_tokens else default.prompt_tokens
    fallback = default.seconds if run.kind == Kind.PASSIVE else most
    return Budget(seconds=min(seconds or fallback, most), prompt_tokens=tokens)


class _Prober(threading.Thread):
    """Runs every target in one event loop and puts (work, event, moment) into the inbox."""

    def __init__(self, works: Sequence[Work], inbox: queue.SimpleQueue[tuple[Work, Any, datetime]]) -> None:
        super().__init__(name="prober", daemon=True)
        self._works = works
        self._inbox = inbox

    def run(self) -> None:
        asyncio.run(self._all())

    async def _all(self) -> None:
        await asyncio.gather(*(self._one(work) for work in self._works))

    async def _one(self, work: Work) -> None:
        ended = Ended()
        try:
            assert work.target is not None
            events = runner.run(
                work.target,
                work.run.checks,
                budget=work.budget,
                history=work.history,
                cancelled=lambda: bool(work.stop),
                permission=replaying.permission_of(work.run),
            )
            async for event in events:
                self._inbox.put((work, event, timezone.now()))
        except Exception as fault:
            # A defect of ours: the run ends as error and the other runs go on.
            log.exception("run %s broke", work.run.pk)
            ended = Ended(f"The audit broke inside kvaudit ({type(fault).__name__}).")
        self._inbox.put((work, ended, timezone.now()))


class _Desk:
    """The calling thread's part."""

    def __init__(self, works: Sequence[Work]) -> None:
        self.inbox: queue.SimpleQueue[tuple[Work, Any, datetime]] = queue.SimpleQueue()
        self.open = {work.run.pk: work for work in works if work.target is not None}
        self.done: list[Work] = [work for work in works if work.target is None]
        self.finished = 0
        self.next_beat = time.monotonic() + options.heartbeat_seconds()
        self.prober = _Prober([work for work in works if work.target is not None], self.inbox)

    def run(self) -> int:
        self.prober.start()
        try:
            self._until_done()
        except SoftTimeLimitExceeded:
            self._stop_all("out of time")
            self._until_done(within=STOP_GRACE)
        finally:
            self._stop_all("lost")
        self.prober.join(STOP_GRACE)
        return self.finished

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
            if not self.prober.is_alive() and self.inbox.empty():
                for work in list(self.open.values()):
                    self._note(work, Ended("The audit's event loop ended early."), timezone.now())

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
            work.results += _errors(
                missing, event.problem or "The audit ended without a result of this check."
            )
            if work.stop != "lost":
                self.done.append(work)

    def _result(self, work: Work, result: Result, moment: datetime) -> None:
        unfinished = work.stop == "cancelled" and result.verdict is Verdict.ERROR
        observed = Observed(result, moment, unfinished=unfinished)
        work.results.append(observed)
        work.shown["checks"][result.check] = "cancelled" if unfinished else result.verdict.value
        if work.run.kind == Kind.ACTIVE and not unfinished:
            self._write_partly(work, observed)

    def _write_partly(self, work: Work, observed: Observed) -> None:
        if not _patiently(lambda: recording.record_partly(work.claim, observed)):
            self._lose(work)

    def _write(self) -> None:
        """Write the next batch; it leaves ``done`` only afterwards, so that an interruption loses nothing."""
        batch = self.done[:WRITE_AT_ONCE]
        mine = [work for work in batch if work.stop != "lost"]
        try:
            self.finished += len(_patiently(lambda: recording.finish([work.finished() for work in mine])))
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
            return len(_patiently(lambda: recording.finish([work.finished()])))
        except (OperationalError, InterfaceError, SoftTimeLimitExceeded):
            raise
        except Exception as fault:
            log.exception("the results of run %s cannot be written", work.run.pk)
            problem = (
                f"The results could not be stored ({type(fault).__name__}); the log of the worker says why."
            )
            bare = Finished(work.claim, _errors(work.run.checks, problem))
            return len(_patiently(lambda: recording.finish([bare])))

    def _beat(self) -> None:
        self.next_beat = time.monotonic() + options.heartbeat_seconds()
        works = [*self.open.values(), *self.done]
        news: dict[int, str] = {}
        for work in works:
            shown = json.dumps(work.shown)
            if shown != work.told:
                news[work.run.pk] = work.told = shown
        ours = _patiently(lambda: claiming.heartbeat([work.claim for work in works], news))
        for work in works:
            if work.run.pk not in ours:
                self._lose(work)
            elif (ours[work.run.pk] or self._paused(work)) and not work.stop:
                work.stop = "cancelled"

    def _paused(self, work: Work) -> bool:
        return work.run.kind == Kind.ACTIVE and probes_paused(work.run.deployment)

    def _lose(self, work: Work) -> None:
        """The run belongs to somebody else: stop probing, write nothing."""
        log.warning("run %s was given to another worker", work.run.pk)
        work.stop = "lost"
        self.open.pop(work.run.pk, None)

    def _stop_all(self, why: str) -> None:
        for work in self.open.values():
            work.stop = work.stop or why


def _errors(checks: Iterable[str], problem: str) -> list[Observed]:
    now = timezone.now()
    return [
        Observed(
            Result(
                check,
                Verdict.ERROR,
                problem,
                next="Run it again; if this repeats, look at the worker's log.",
                does_not_prove="Nothing was learnt about the target.",
            ),
            now,
        )
        for check in checks
    ]


def _patiently(act: Callable[[], Returned]) -> Returned:
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
