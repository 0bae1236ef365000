"""The Deployment page: how it stands and why, what its nodes said, what changed, what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.models import Plan, Result, Run, RunState
from kvaudit.server.audits.schedule.defaults import Missing as WaitingCheck
from kvaudit.server.audits.schedule.defaults import missing_for
from kvaudit.server.audits.state import standing
from kvaudit.server.audits.state.deployment_status import CheckNow, DeploymentStatus
from kvaudit.server.audits.state.status import status_of
from kvaudit.server.audits.state.tiers import Assessment
from kvaudit.server.fleet.models import Consent, Deployment, FingerprintChange, Node, NodeSnapshot, Pause
from kvaudit.server.fleet.session_approval import held_back
from kvaudit.server.incidents.assessments import assessment
from kvaudit.server.web.kit.parts import checks
from kvaudit.server.web.kit.parts.accumulated_evidence import AccumulatedEvidence, accumulated_of
from kvaudit.server.web.kit.parts.audit_kinds import able_active
from kvaudit.server.web.kit.parts.leak_explanation import Mechanism, mechanism_of
from kvaudit.server.web.kit.parts.pool_bar import PoolBar, from_measures
from kvaudit.server.web.kit.parts.readings import ReadingLine, main_lines, notes, other_lines
from kvaudit.server.web.kit.parts.run_progress import waiting

RECENT_RUNS = 15
RECENT_CHANGES = 8


@dataclass(frozen=True, slots=True)
class CheckRow:
    now: CheckNow
    title: str
    next_step: str


@dataclass(frozen=True, slots=True)
class NodeRow:
    node: Node
    snapshot: NodeSnapshot | None
    lines: Sequence[ReadingLine]
    others: Sequence[ReadingLine]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Missing:
    """Something without which the deployment cannot be fully judged, and what to do about it."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class RunLine:
    """``why`` says of a run that is queued what it waits for; else ""."""

    run: Run
    why: str = ""


@dataclass(frozen=True, slots=True)
class DeploymentPage:
    deployment: Deployment
    status: DeploymentStatus
    said: Assessment
    mechanism: Mechanism | None  # behind a fail
    checks: Sequence[CheckRow]
    bar: PoolBar | None
    evidence: AccumulatedEvidence | None  # of the canary's runs
    nodes: Sequence[NodeRow]
    changes: Sequence[FingerprintChange]
    plans: Sequence[Plan]
    runs: Sequence[RunLine]
    pending: Run | None
    missing: Sequence[Missing]
    active_checks: Sequence[str]  # those that could be asked for now
    consent: Consent | None
    pauses: Sequence[Pause]  # of this deployment and of the whole fleet

    @property
    def may_qualify(self) -> bool:
        """Whether the boundary lacks evidence that an audit without traffic could bring now."""
        lacks = self.evidence is not None and not self.evidence.qualified
        return lacks and any(check in standing.ACCUMULATING for check in self.active_checks)

    @property
    def suspended(self) -> bool:
        return any(pause.suspended for pause in self.pauses)

    @property
    def paused_here(self) -> bool:
        return any(pause.deployment_id for pause in self.pauses)


def deployment_page(deployment: Deployment) -> DeploymentPage:
    status = status_of(deployment)
    results = _results(status)
    nodes = _nodes(deployment)
    waiting = missing_for(deployment)
    plans = list(Plan.objects.for_deployment(deployment).order_by("name", "pk"))
    consent = Consent.objects.current().filter(deployment=deployment).first()
    runs = list(Run.objects.of(deployment).select_related("plan", "actor").before(None)[:RECENT_RUNS])
    pool = status.checks.get("pool")
    measures = results[pool.result_id].measures if pool and pool.result_id in results else None
    return DeploymentPage(
        deployment=deployment,
        status=status,
        said=assessment(deployment, status),
        mechanism=_mechanism(status, results),
        checks=[_check_row(now, results) for now in status.checks.values()],
        bar=from_measures(measures),
        evidence=_accumulated(status, results),
        nodes=nodes,
        changes=list(
            FingerprintChange.objects.filter(deployment=deployment).select_related("node")[:RECENT_CHANGES]
        ),
        plans=plans,
        runs=_run_lines(runs),
        pending=_pending(runs, status),
        missing=[*missing(status, nodes, plans, waiting), *_held(deployment)],
        active_checks=able_active(deployment, waiting),
        consent=consent,
        pauses=list(Pause.objects.current().applying_to(deployment)),
    )


def _run_lines(runs: Sequence[Run]) -> list[RunLine]:
    running = [run for run in runs if run.state == RunState.RUNNING]
    return [RunLine(run, waiting(run, running) if run.state == RunState.QUEUED else "") for run in runs]


def _pending(runs: Sequence[Run], status: DeploymentStatus) -> Run | None:
    """What is worth following live: a running audit before one that waits; none that is for later."""
    now = [run for run in runs if not run.ended and run.not_before <= status.moment]
    return min(now, key=lambda run: run.state != RunState.RUNNING, default=None)


def _results(status: DeploymentStatus) -> dict[int | None, Result]:
    ids = [now.result_id for now in (*status.checks.values(), *status.nodes) if now.result_id]
    return {result.pk: result for result in Result.objects.filter(pk__in=ids)}


def _accumulated(status: DeploymentStatus, results: dict[int | None, Result]) -> AccumulatedEvidence | None:
    """None where it has expired: it was of a build, or of weeks, that are over."""
    found = (
        accumulated_of(results.get(now.result_id))
        for now in status.checks.values()
        if now.check in standing.ACCUMULATING and not now.expired
    )
    return next(filter(None, found), None)


def _mechanism(status: DeploymentStatus, results: dict[int | None, Result]) -> Mechanism | None:
    if status.verdict is not Verdict.FAIL:
        return None
    standing = [results.get(now.result_id) for now in status.checks.values() if not now.expired]
    return mechanism_of(each for each in standing if each is not None)


def _check_row(now: CheckNow, results: dict[int | None, Result]) -> CheckRow:
    result = results.get(now.result_id)
    return CheckRow(
        now=now,
        title=checks.title(now.check),
        next_step=standing.next_step(result)
        if result is not None and now.verdict is not Verdict.PASS
        else "",
    )


def _nodes(deployment: Deployment) -> list[NodeRow]:
    rows = []
    for node in Node.objects.current().filter(deployment=deployment).with_snapshot():
        snapshots: list[NodeSnapshot] = getattr(node, "current_snapshots", [])
        snapshot = snapshots[0] if snapshots else None
        facts: Any = snapshot.facts if snapshot is not None and isinstance(snapshot.facts, dict) else {}
        rows.append(NodeRow(node, snapshot, main_lines(facts), other_lines(facts), notes(facts)))
    order = {"prefill": 0, "decode": 1}
    return sorted(rows, key=lambda row: (order.get(row.node.role, 2), row.node.name))


def missing(
    status: DeploymentStatus, nodes: Sequence[NodeRow], plans: Sequence[Plan], waiting: Sequence[WaitingCheck]
) -> list[Missing]:
    """What stands between this deployment and a full judgement, most basic first."""
    found: list[Missing] = []
    if not nodes:
        found.append(Missing("No node is listed.", "Import the deployment with its nodes."))
    unread = [row.node.name for row in nodes if row.snapshot is None]
    if unread:
        found.append(Missing(f"Never read: {_some(unread)}.", "Audit now, then see why the read failed."))
    if not any(plan.enabled for plan in plans):
        found.append(
            Missing("No enabled plan selects it.", "Add it to a plan: nothing is audited on schedule.")
        )
    cannot_run: dict[str, list[str]] = {}
    for each in waiting:
        cannot_run.setdefault(each.why, []).append(each.check)
    found += [Missing(f"{_some(names)} cannot run yet.", why) for why, names in cannot_run.items()]
    planned = {name for plan in plans if plan.enabled for name in plan.checks}
    able = [
        name
        for name, now in status.checks.items()
        if now.required and name not in planned and not any(name in names for names in cannot_run.values())
    ]
    if able and planned:
        found.append(Missing(f"Required but in no plan: {_some(able)}.", "Add these checks to a plan."))
    return found


def _held(deployment: Deployment) -> list[Missing]:
    """What the check session waits for, where a session API is described."""
    return [Missing("session cannot run yet.", why) for why in held_back([deployment]).values()]


def _some(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
