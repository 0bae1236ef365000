"""A run on its way: which check is done, which is being carried out, what is still to come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils import timezone

from kvaudit.auditor.readings import whole_number
from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.audits import options
from kvaudit.server.audits.models import Kind, Result, Run, RunState
from kvaudit.server.web.kit import times
from kvaudit.server.web.kit.progress import Live

QUIET = 10.0
"""Seconds without a sign of the worker that are worth a word; it gives one every two."""


@dataclass(frozen=True, slots=True)
class Step:
    """One check. ``verdict`` is "" until it has one."""

    check: str
    state: str  # done, now, to come or cancelled
    verdict: str


@dataclass(frozen=True, slots=True)
class Progress:
    run: Run
    sentence: str
    steps: Sequence[Step]
    done: int
    total: int
    nodes_read: int
    nodes_total: int
    live: Live
    on_run_page: bool


def progress_of(run: Run, *, may_cancel: bool, on_run_page: bool = False) -> Progress:
    """From the stored results of the current attempt, and the note that the worker keeps while it
    is at work: ``{"nodes": 2, "read": 1, "checks": {"pool": "pass", "version": "running", ...}}``."""
    note: Mapping[str, Any] = run.progress if isinstance(run.progress, dict) else {}
    told = note.get("checks")
    said: dict[str, str] = {str(k): str(v) for k, v in told.items()} if isinstance(told, dict) else {}
    verdicts = {name: word for name, word in said.items() if word in set(Verdict)}
    verdicts |= dict(Result.objects.filter(run=run, attempt=run.attempt).values_list("check_id", "verdict"))
    steps = [_step(check, verdicts.get(check, ""), said.get(check, "")) for check in run.checks]
    return Progress(
        run=run,
        sentence=_sentence(run, [step.check for step in steps if step.state == "now"]),
        steps=steps,
        done=sum(1 for step in steps if step.state == "done"),
        total=len(steps),
        nodes_read=whole_number(note.get("read")) or 0,
        nodes_total=whole_number(note.get("nodes")) or 0,
        live=_live(run, may_cancel, on_run_page),
        on_run_page=on_run_page,
    )


def _live(run: Run, may_cancel: bool, on_run_page: bool) -> Live:
    poll = reverse("run-progress", args=[run.pk])
    return Live(
        page=reverse("run", args=[run.pk]),
        poll="" if run.ended else f"{poll}?page=run" if on_run_page else poll,
        cancel=reverse("run-cancel", args=[run.pk]) if may_cancel and not run.cancel_requested_at else "",
        what="run",
    )


def _step(check: str, verdict: str, word: str) -> Step:
    state = (
        "done"
        if verdict
        else "now"
        if word == "running"
        else "cancelled"
        if word == "cancelled"
        else "to come"
    )
    return Step(check, state, verdict)


def silence(run: Run) -> str:
    """A sentence where nothing has been heard of the worker for long, or the one before was lost; else ""."""
    if run.state == RunState.QUEUED and run.attempt > 0:
        return "Its worker was lost in the middle of it; another is to take over."
    if run.state != RunState.RUNNING or run.lease_until is None:
        return ""
    lease = options.lease_seconds()
    quiet = lease - (run.lease_until - clock.now()).total_seconds()
    if quiet < max(QUIET, 3 * options.heartbeat_seconds()):
        return ""
    last = run.attempt >= options.MOST_ATTEMPTS or run.cancel_requested_at is not None
    then = "the run ends as it stands" if last else "another takes over"
    when = f"after {lease:.0f} s" if quiet < lease else "within a minute"
    return f"No sign of its worker for {times.duration(quiet)}; {then} {when}."


def waiting(run: Run, running: Iterable[Run]) -> str:
    """Why a queued run does not go on yet. ``running``: those that are being carried out on its deployment now; an
    active one lets no other active one begin (`claiming`)."""
    if lost := silence(run):
        return lost
    now = clock.now()
    if run.not_before > now:
        at = timezone.localtime(run.not_before)
        day = "" if at.date() == timezone.localtime(now).date() else f"{at:%Y-%m-%d} "
        return f"Starts {times.ago(run.not_before, now)}, at {day}{at:%H:%M}."
    if run.kind == Kind.ACTIVE:
        for other in running:
            if other.kind == Kind.ACTIVE and other.pk != run.pk:
                return f"After run {other.pk}, which sends prompts to this deployment now."
    return "Waiting for a worker."


def waits(run: Run) -> str:
    """`waiting`, of a run by itself. One query at most."""
    now = Run.objects.of(run.deployment).filter(state=RunState.RUNNING, kind=Kind.ACTIVE)
    return waiting(run, now.order_by("id") if run.kind == Kind.ACTIVE else ())


def _sentence(run: Run, current: Sequence[str]) -> str:
    if run.ended:
        return f"The audit is {run.state}."
    quiet = silence(run)
    if run.cancel_requested_at is not None:
        return f"Cancelling: it stops before its next step. {quiet}".rstrip()
    if quiet:
        return quiet
    if run.state == RunState.QUEUED:
        return waits(run)
    return f"Carrying out {', '.join(current)}." if current else "Reading the nodes."
