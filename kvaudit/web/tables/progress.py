"""A run on its way: which check is done, which is being carried out, what is still to come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvaudit.audits.models import Result, Run, RunState
from kvaudit.readings import whole_number


@dataclass(frozen=True, slots=True)
class Step:
    """One check. ``verdict`` is "" until it has one."""

    check: str
    state: str  # "done", "now" or "to come"
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

    @property
    def live(self) -> bool:
        """Whether it is worth asking again."""
        return not self.run.ended


def progress_of(run: Run) -> Progress:
    """From the stored results of the current attempt and the run's own note of where it is."""
    note: Mapping[str, Any] = run.progress if isinstance(run.progress, dict) else {}
    verdicts = dict(Result.objects.filter(run=run, attempt=run.attempt).values_list("check_id", "verdict"))
    current = str(note.get("check") or note.get("current") or "") if not run.ended else ""
    steps = [
        Step(check, "done" if check in verdicts else "now" if check == current else "to come",
             verdicts.get(check, ""))
        for check in run.checks
    ]  # fmt: skip
    return Progress(
        run=run,
        sentence=_sentence(run, current),
        steps=steps,
        done=sum(1 for step in steps if step.state == "done"),
        total=len(steps),
        nodes_read=whole_number(note.get("nodes_read")) or 0,
        nodes_total=whole_number(note.get("nodes_total")) or whole_number(note.get("nodes")) or 0,
    )


def _sentence(run: Run, current: str) -> str:
    if run.ended:
        return f"The audit is {run.state}."
    if run.cancel_requested_at is not None:
        return "Cancelling: it stops before its next step."
    if run.state == RunState.QUEUED:
        return "Waiting for a worker."
    return f"Carrying out {current}." if current else "Reading the nodes."
