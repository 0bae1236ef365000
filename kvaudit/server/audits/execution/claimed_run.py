"""Holds one claimed run while a worker has it: shared by the event loop that probes and the coordinator that
writes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from kvaudit.auditor.checks.contract import History, NodeSeen
from kvaudit.auditor.prober import Permission
from kvaudit.auditor.prober.spending import TokenUsage
from kvaudit.auditor.runner import Budget
from kvaudit.auditor.targets import Target
from kvaudit.auditor.text.markers import Marker
from kvaudit.auditor.verdict import Result, Verdict
from kvaudit.server import clock
from kvaudit.server.audits import options
from kvaudit.server.audits.execution.claims import Claim
from kvaudit.server.audits.execution.outcome import Finished, Observed
from kvaudit.server.audits.models import Run
from kvaudit.server.fleet.models import Node

SILENCE = 0.75
"""Of a lease without a heartbeat, after which nothing more is sent."""


@dataclass
class ClaimedRun:
    """One claimed run while it is being worked on."""

    claim: Claim
    run: Run
    target: Target | None
    history: History | None
    rows: dict[str, Node]
    budget: Budget
    nodes: list[NodeSeen] = field(default_factory=list)
    results: list[Observed] = field(default_factory=list)
    read_at: datetime = field(default_factory=clock.now)
    stop: str = ""  # why the loop should leave this run: cancelled, lost, stood still or out of time
    out_of_time: str = ""  # the sentence for the worker's own time limit: what was found by then counts
    stop_sending: str = ""  # the sentence why nothing more may be sent: paused, or the window closed
    confirmed: float = field(default_factory=time.monotonic)  # when the lease was last known to be ours
    planted: list[Marker] = field(default_factory=list)  # grown by the event loop
    markers_stored: int = 0  # of these, how many are stored
    spent: TokenUsage = field(default_factory=TokenUsage)
    permission: Permission | None = None
    progress: dict[str, Any] = field(default_factory=dict)
    reported_progress: str = ""

    def stopped(self) -> str:
        """Asked before every request. Without a sign from the database for most of a lease, somebody else
        may be probing this deployment already."""
        silent = time.monotonic() - self.confirmed
        if silent > options.lease_seconds() * SILENCE:
            return f"The database has not confirmed this run for {silent:.0f} s."
        return self.stop_sending or self.out_of_time

    @property
    def changed_at(self) -> datetime | None:
        """When the fingerprint last changed significantly."""
        return None if self.history is None else self.history.fingerprint_changed_at

    @property
    def tokens_spent(self) -> int:
        """Prompt tokens over all attempts."""
        return self.run.tokens_spent + self.spent.prompt_tokens

    def cut_short(self, result: Result) -> bool:
        """Whether this result only says that the run was stopped: it says nothing about the target.
        A canary that was cancelled in its first round is *inconclusive*, and must not replace a pass."""
        stopped = bool(self.stop_sending) or self.stop == "cancelled"
        return stopped and result.verdict in (Verdict.ERROR, Verdict.INCONCLUSIVE)

    def again(self) -> ClaimedRun:
        """The same run with nothing done yet, for another loop. Only for runs that send no prompts."""
        shown = {**self.progress, "read": 0, "checks": dict.fromkeys(self.run.checks, "waiting")}
        return replace(self, nodes=[], results=[], stop="", progress=shown, spent=TokenUsage())

    def finished(self) -> Finished:
        return Finished(
            self.claim,
            self.results,
            [(self.rows[node.name], node) for node in self.nodes if node.name in self.rows],
            self.read_at,
            self.tokens_spent,
        )


def errors(checks: Iterable[str], problem: str) -> list[Observed]:
    now = clock.now()
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
