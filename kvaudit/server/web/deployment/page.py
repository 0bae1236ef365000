"""The Deployment pages: an overview of what is, why and what to do, and a tab for each further question. Each asks
only for what it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.models import Plan, Result, Run, RunState
from kvaudit.server.audits.schedule.defaults import Missing as WaitingCheck
from kvaudit.server.audits.schedule.defaults import missing_for
from kvaudit.server.audits.state import standing
from kvaudit.server.audits.state.deployment_status import CheckNow, DeploymentStatus
from kvaudit.server.fleet.models import Deployment, FingerprintChange, Node, NodeSnapshot
from kvaudit.server.fleet.session_approval import held_back
from kvaudit.server.web.kit.parts import checks
from kvaudit.server.web.kit.parts.accumulated_evidence import AccumulatedEvidence, accumulated_of
from kvaudit.server.web.kit.parts.leak_explanation import Mechanism, mechanism_of
from kvaudit.server.web.kit.parts.pool_bar import PoolBar, from_measures
from kvaudit.server.web.kit.parts.readings import ReadingLine, main_lines, notes, other_lines
from kvaudit.server.web.kit.parts.run_progress import waiting

RECENT_RUNS = 15
RECENT_CHANGES = 8
MOST_STEPS = 3


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
class Overview:
    """What is, why, and what to do. ``steps`` are the failing checks' own next steps, ``evidence`` the run to look at
    first."""

    mechanism: Mechanism | None
    bar: PoolBar | None
    steps: Sequence[str]
    evidence: int | None
    missing: Sequence[Missing]
    more_missing: int


@dataclass(frozen=True, slots=True)
class ChecksTab:
    checks: Sequence[CheckRow]
    missing: Sequence[Missing]
    evidence: AccumulatedEvidence | None  # of the canary's runs


@dataclass(frozen=True, slots=True)
class HistoryTab:
    runs: Sequence[RunLine]
    changes: Sequence[FingerprintChange]


def overview(deployment: Deployment, status: DeploymentStatus) -> Overview:
    results = _results(status)
    found = missing(deployment, status)
    pool = status.checks.get("pool")
    failing = status.failing
    steps = [results[now.result_id].next_step for now in failing if now.result_id in results]
    return Overview(
        mechanism=_mechanism(status, results),
        bar=from_measures(results[pool.result_id].measures if pool and pool.result_id in results else None),
        steps=list(dict.fromkeys(filter(None, steps)))[:MOST_STEPS],
        evidence=next((now.run_id for now in failing if now.run_id), None),
        missing=found[:MOST_STEPS],
        more_missing=max(0, len(found) - MOST_STEPS),
    )


def checks_tab(deployment: Deployment, status: DeploymentStatus) -> ChecksTab:
    results = _results(status)
    rows = [_check_row(now, results) for now in status.checks.values()]
    return ChecksTab(rows, missing(deployment, status), _accumulated(status, results))


def history_tab(deployment: Deployment) -> HistoryTab:
    runs = list(Run.objects.of(deployment).select_related("plan", "actor").before(None)[:RECENT_RUNS])
    changes = FingerprintChange.objects.filter(deployment=deployment).select_related("node")
    return HistoryTab(_run_lines(runs), list(changes[:RECENT_CHANGES]))


def pending(deployment: Deployment, status: DeploymentStatus) -> Run | None:
    """What is worth following live: a running audit before one that waits; none that is for later."""
    under_way = Run.objects.of(deployment).filter(state__in=(RunState.QUEUED, RunState.RUNNING))
    now = list(under_way.filter(not_before__lte=status.moment).order_by("-id")[:RECENT_RUNS])
    return min(now, key=lambda run: run.state != RunState.RUNNING, default=None)


def plans_for(deployment: Deployment) -> list[Plan]:
    return list(Plan.objects.for_deployment(deployment).order_by("name", "pk"))


def _run_lines(runs: Sequence[Run]) -> list[RunLine]:
    running = [run for run in runs if run.state == RunState.RUNNING]
    return [RunLine(run, waiting(run, running) if run.state == RunState.QUEUED else "") for run in runs]


def _results(status: DeploymentStatus) -> Mapping[int | None, Result]:
    ids = [now.result_id for now in (*status.checks.values(), *status.nodes) if now.result_id]
    return {result.pk: result for result in Result.objects.filter(pk__in=ids)}


def _accumulated(
    status: DeploymentStatus, results: Mapping[int | None, Result]
) -> AccumulatedEvidence | None:
    """None where it has expired: it was of a build, or of weeks, that are over."""
    found = (
        accumulated_of(results.get(now.result_id))
        for now in status.checks.values()
        if now.check in standing.ACCUMULATING and not now.expired
    )
    return next(filter(None, found), None)


def _mechanism(status: DeploymentStatus, results: Mapping[int | None, Result]) -> Mechanism | None:
    if status.verdict is not Verdict.FAIL:
        return None
    standing = [results.get(now.result_id) for now in status.checks.values() if not now.expired]
    return mechanism_of(each for each in standing if each is not None)


def _check_row(now: CheckNow, results: Mapping[int | None, Result]) -> CheckRow:
    result = results.get(now.result_id)
    return CheckRow(
        now=now,
        title=checks.title(now.check),
        next_step=standing.next_step(result)
        if result is not None and now.verdict is not Verdict.PASS
        else "",
    )


def nodes_of(deployment: Deployment) -> list[NodeRow]:
    rows = []
    for node in Node.objects.current().filter(deployment=deployment).with_snapshot():
        snapshots: list[NodeSnapshot] = getattr(node, "current_snapshots", [])
        snapshot = snapshots[0] if snapshots else None
        facts: Any = snapshot.facts if snapshot is not None and isinstance(snapshot.facts, dict) else {}
        rows.append(NodeRow(node, snapshot, main_lines(facts), other_lines(facts), notes(facts)))
    order = {"prefill": 0, "decode": 1}
    return sorted(rows, key=lambda row: (order.get(row.node.role, 2), row.node.name))


def missing(deployment: Deployment, status: DeploymentStatus) -> list[Missing]:
    """What stands between this deployment and a full judgement, most basic first."""
    found = _missing(status, nodes_of(deployment), plans_for(deployment), missing_for(deployment))
    return [*found, *_held(deployment)]


def _missing(
    status: DeploymentStatus, nodes: Sequence[NodeRow], plans: Sequence[Plan], waiting: Sequence[WaitingCheck]
) -> list[Missing]:
    found: list[Missing] = []
    if not nodes:
        found.append(Missing("No node is listed.", "Import the deployment with its nodes."))
    unread = [row.node.name for row in nodes if row.snapshot is None]
    if unread:
        found.append(
            Missing(f"Never read: {_some(unread)}.", "Run the passive checks, then see why the read failed.")
        )
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
