"""Carries out a worker's task: claims runs, loads them with all they need, and gives them to a
`RunCoordinator`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from kvaudit.auditor.runner import Budget
from kvaudit.server import clock
from kvaudit.server.audits.execution import claims as claiming
from kvaudit.server.audits.execution import replay
from kvaudit.server.audits.execution.claimed_run import ClaimedRun, errors
from kvaudit.server.audits.execution.claims import Claim
from kvaudit.server.audits.execution.permissions import permission_of
from kvaudit.server.audits.execution.worker import RunCoordinator
from kvaudit.server.audits.models import Kind, Run, RunState, Trigger
from kvaudit.server.audits.schedule import windows
from kvaudit.server.audits.state.earlier_runs import with_measures
from kvaudit.server.audits.state.history import histories
from kvaudit.server.fleet.models import Node
from kvaudit.server.fleet.target_loader import load_targets, probes_paused

PASSIVE_SECONDS = 120.0
ACTIVE_SECONDS = 1500.0  # below the tasks' soft limit


def execute(run_ids: Iterable[int], *, kind: Kind) -> int:
    """Claim these runs and work on those that could be claimed; returns how many were finished."""
    wanted = list(run_ids) if kind == Kind.PASSIVE else _allowed_now(run_ids)
    clock.set_by_database()  # once per claim: from here on this process counts by itself
    claims = claiming.claim(wanted, kind=kind)
    if not claims:
        return 0
    claimed_runs = _load(claims)
    return RunCoordinator(claimed_runs).run()


def _allowed_now(run_ids: Iterable[int]) -> list[int]:
    """Active runs whose window is open and whose probes are not paused; the others wait, and become
    *missed* if that lasts longer than they may."""
    now = clock.now()
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


def _load(claims: Sequence[Claim]) -> list[ClaimedRun]:
    runs = Run.objects.select_related("deployment__team", "plan").in_bulk([claim.run_id for claim in claims])
    deployments = {run.deployment_id: run.deployment for run in runs.values()}
    known = histories(deployments.values())
    rows: dict[int, dict[str, Node]] = {pk: {} for pk in deployments}
    for node in Node.objects.current().filter(deployment__in=deployments):
        rows[node.deployment_id][node.name] = node
    targets, unable = load_targets(deployments.values())
    claimed_runs = []
    replay.draw_seeds(runs.values())
    for claim in claims:
        run = runs[claim.run_id]
        target = targets.get(run.deployment_id)
        history = known[run.deployment_id]
        if run.kind == Kind.ACTIVE:
            history = with_measures(history, run.deployment)
        claimed = ClaimedRun(claim, run, target, history, rows[run.deployment_id], budget_of(run))
        claimed.permission = permission_of(
            run, stopped=claimed.stopped, planted=claimed.planted.append, spent=claimed.spent
        )
        if target is None:
            claimed.results = errors(run.checks, unable[run.deployment_id])
        claimed.progress = {
            "nodes": len(claimed.rows),
            "read": 0,
            "checks": dict.fromkeys(run.checks, "waiting"),
        }
        claimed_runs.append(claimed)
    return claimed_runs


def budget_of(run: Run) -> Budget:
    """The plan's ceilings, within what a task may take."""
    most = PASSIVE_SECONDS if run.kind == Kind.PASSIVE else ACTIVE_SECONDS
    default = Budget()
    seconds = run.plan.budget_seconds if run.plan and run.plan.budget_seconds else None
    tokens = run.plan.budget_tokens if run.plan and run.plan.budget_tokens else default.prompt_tokens
    fallback = default.seconds if run.kind == Kind.PASSIVE else most
    return Budget(seconds=min(seconds or fallback, most), prompt_tokens=tokens)
