"""Plan -> Run -> Result, the evidence that results cite, and state as intervals."""

from __future__ import annotations

from kvaudit.server.audits.models.evidence import Evidence, Planting, PrunedEvidence, RunEvidence
from kvaudit.server.audits.models.plans import Kind, Plan, Planned, Where
from kvaudit.server.audits.models.runs import Result, Run, RunState, Trigger
from kvaudit.server.audits.models.state import VERDICTS, CheckState, CheckStateQuerySet, Overdue, StateChange
from kvaudit.server.audits.models.worker_clocks import WorkerClock

__all__ = (
    "VERDICTS",
    "CheckState",
    "CheckStateQuerySet",
    "Evidence",
    "Kind",
    "Overdue",
    "Plan",
    "Planned",
    "Planting",
    "PrunedEvidence",
    "Result",
    "Run",
    "RunEvidence",
    "RunState",
    "StateChange",
    "Trigger",
    "Where",
    "WorkerClock",
)
