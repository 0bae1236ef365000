"""Writing down what a worker found: results, readings, state, evidence, follow-ups and the ledger
entry of each run, in one transaction, behind the fence of the claim.

Lock order, the same everywhere: runs, deployments, nodes, state; the ledger's chain last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import transaction

from kvaudit.auditor.checks.contract import NodeSeen
from kvaudit.auditor.readings import deployment_digest, fingerprint
from kvaudit.auditor.verdict import Result as Concluded
from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.audits import alerts
from kvaudit.server.audits.evidence import run_proof as proving
from kvaudit.server.audits.evidence import store as evidence
from kvaudit.server.audits.evidence.canonical import clean, clean_text
from kvaudit.server.audits.execution import rerun_rules as followups
from kvaudit.server.audits.execution import run_verdict as outcome
from kvaudit.server.audits.execution import suspension as suspending
from kvaudit.server.audits.execution.claims import Claim, fence
from kvaudit.server.audits.models import Result, Run, RunState, StateChange
from kvaudit.server.audits.schedule.plans import period_of
from kvaudit.server.audits.state import intervals as states
from kvaudit.server.fleet.models import FingerprintChange, Node
from kvaudit.server.fleet.snapshot_writer import Read, record_batch
from kvaudit.server.ledger.services import Act, record_all

WORKER = "system:worker"


@dataclass(frozen=True, slots=True)
class Observed:
    """A result and when it was seen. ``unfinished`` marks the placeholder of a check that a
    cancellation cut short: it is kept, but says nothing about the target and moves no state."""

    result: Concluded
    at: datetime
    unfinished: bool = False


@dataclass(slots=True)
class Finished:
    """All that one claimed run came to. ``nodes`` pairs rows with what was read of them at ``read_at``;
    ``tokens_spent`` are prompt tokens over all attempts."""

    claim: Claim
    results: Sequence[Observed]
    nodes: Sequence[tuple[Node, NodeSeen]] = ()
    read_at: datetime = field(default_factory=clock.now)
    tokens_spent: int = 0

    @property
    def cancelled(self) -> bool:
        return any(each.unfinished for each in self.results)


@transaction.atomic
def record_partly(claim: Claim, observed: Observed, nodes: Iterable[NodeSeen] = ()) -> bool:
    """Keep one result of a long run at once, with what it means for state: a fail stands, and is
    told, whatever happens to the worker. ``nodes`` are what the run has read, so that its state names
    the configuration it speaks of. False when the run is no longer ours."""
    run = fence([claim]).get(claim.run_id)
    if run is None:
        return False
    run.fingerprint = _digest(nodes)
    run.deployment = states.lock_deployments([run.deployment_id])[run.deployment_id]
    rows, fresh = _results({run.pk: run}, [Finished(claim, [observed])])
    changes = states.apply(_observations({run.pk: run}, [Finished(claim, [observed])], rows, fresh))
    evidence.keep(evidence.Kept(run.pk, item) for item in observed.result.evidence)
    changes += suspending.suspensions(run, rows[run.pk])
    alerts.tell(changes)
    # State rests on it from now on, and the run's own entry comes only with its end.
    record_all(
        actor=WORKER,
        acts=[
            Act(proving.RECORDED, proving.subject_of(row), outcome.result_digest(row))
            for row in rows[run.pk]
            if (row.attempt, row.check_id) == (run.attempt, observed.result.check)
        ],
    )
    return True


@transaction.atomic
def finish(batch: Sequence[Finished]) -> set[int]:
    """End these runs; returns the ids of those that were still ours. The others leave no trace."""
    runs = fence(each.claim for each in batch)
    write(runs, [each for each in batch if each.claim.run_id in runs])
    return set(runs)


def write(runs: dict[int, Run], done: Sequence[Finished]) -> None:
    """End runs that the caller has locked (`finish`, or the recovery of lost ones)."""
    if not done:
        return
    deployments = states.lock_deployments(run.deployment_id for run in runs.values())
    for run in runs.values():
        run.deployment = deployments[run.deployment_id]
    capacity = _readings(runs, done)
    changes = followups.capacity_changes(capacity)
    rows, fresh = _results(runs, done)
    changes += states.apply(_observations(runs, done, rows, fresh))
    evidence.keep(_kept(runs, done, {change.deployment_id for change in changes}))
    for each in done:
        run = runs[each.claim.run_id]
        run.progress = {**run.progress, "nodes": len(each.nodes), "read": len(each.nodes)}
        _conclude(run, rows[run.pk], cancelled=each.cancelled)
        run.tokens_spent = max(run.tokens_spent, each.tokens_spent)
    changes += end(runs.values(), rows)
    for run in runs.values():
        changes += suspending.suspensions(run, rows[run.pk])
    finished = [run for run in runs.values() if run.state == RunState.FINISHED]
    followups.rerun_inconclusive(finished)
    followups.drift_again(finished)
    alerts.tell(changes)
    ledger(runs.values(), rows)


def end(runs: Iterable[Run], rows: dict[int, list[Result]]) -> list[StateChange]:
    """Store the ends of runs (state, verdict and so on are set by the caller) and close what was
    overdue; returns the changes, not saved yet."""
    ended = list(runs)
    for run in ended:
        run.lease_token, run.lease_until, run.finished_at = None, None, clock.now()
        counted = outcome.counting(rows[run.pk])
        run.progress = {
            **run.progress,
            "checks": {check: counted[check].verdict if check in counted else "" for check in run.checks},
        }
    Run.objects.bulk_update(
        ended,
        [
            "state",
            "verdict",
            "warn",
            "summary",
            "fingerprint",
            "tokens_spent",
            "progress",
            "lease_token",
            "lease_until",
            "finished_at",
        ],
    )
    return followups.back_on_schedule([run for run in ended if run.state == RunState.FINISHED])


def ledger(runs: Iterable[Run], rows: dict[int, list[Result]]) -> None:
    """One entry per run over its results and its evidence in canonical order. Last in the transaction: it holds the
    end of the chain."""
    ended = sorted(runs, key=lambda run: run.pk)
    kept = proving.kept_of(run.pk for run in ended)
    record_all(
        actor=WORKER,
        acts=[
            Act(f"run.{run.state}", f"run:{run.pk}", outcome.whole_digest(run, rows[run.pk], kept[run.pk]))
            for run in ended
        ],
    )


def interval_of(run: Run) -> int:
    """The period of the run's plan in seconds; 0 without a plan."""
    if run.plan is None:
        return 0
    return int(period_of(run.plan, run.slot or run.created_at) / timedelta(seconds=1))


def _conclude(run: Run, rows: Sequence[Result], *, cancelled: bool) -> None:
    run.verdict = outcome.verdict_of(run.checks, rows).value
    run.warn = any(row.warn for row in outcome.counting(rows).values())
    run.state = RunState.CANCELLED if cancelled else RunState.FINISHED
    run.summary = outcome.sentence(run.checks, rows, Verdict(run.verdict))


def _readings(runs: dict[int, Run], done: Sequence[Finished]) -> list[tuple[FingerprintChange, Run]]:
    """Keep what was read of nodes and the fingerprint of each run; the significant changes."""
    batch = []
    for each in done:
        run = runs[each.claim.run_id]
        run.fingerprint = _digest(node for _, node in each.nodes)
        batch.append(Read(run.deployment, each.nodes, each.read_at))
    found = zip(done, record_batch(batch), strict=True)
    return [(change, runs[each.claim.run_id]) for each, changes in found for change in changes]


def _digest(nodes: Iterable[NodeSeen]) -> str:
    return deployment_digest(fingerprint(node.facts) for node in nodes if node.facts is not None)


def _results(runs: dict[int, Run], done: Sequence[Finished]) -> tuple[dict[int, list[Result]], set[int]]:
    """Insert what is not there yet; (run id -> rows of every attempt, ids of those that are new)."""
    rows: dict[int, list[Result]] = {run_id: [] for run_id in runs}
    for row in Result.objects.filter(
        run__in=[run for run in runs.values() if run.kind == "active" or run.attempt > 1]
    ):
        rows[row.run_id].append(row)
    new = []
    for each in done:
        run = runs[each.claim.run_id]
        there = {(row.attempt, row.check_id) for row in rows[run.pk]}
        for observed in each.results:
            if observed.result.check in run.checks and (run.attempt, observed.result.check) not in there:
                new.append(_row(run, observed))
                there.add((run.attempt, observed.result.check))
    for row in Result.objects.bulk_create(new):
        rows[row.run_id].append(row)
    return rows, {row.pk for row in new}


def _row(run: Run, observed: Observed) -> Result:
    result = observed.result
    return Result(
        run_id=run.pk,
        deployment_id=run.deployment_id,
        attempt=run.attempt,
        check_id=result.check,
        verdict=Verdict.parse(result.verdict).value,
        warn=bool(result.warn),
        severity=clean_text(result.severity, 10),
        summary=clean_text(result.summary, 2_000),
        measures=clean(result.measures),
        next_step=clean_text(result.next, 2_000),
        does_not_prove=clean_text(result.does_not_prove, 2_000),
        evidence=[clean(item.as_report()) for item in result.evidence],
        observed_at=observed.at,
    )


def _observations(
    runs: dict[int, Run], done: Sequence[Finished], rows: dict[int, list[Result]], fresh: set[int]
) -> list[states.Observation]:
    """The results that count of each run, but for the placeholders of a cancellation. A fail of an
    earlier attempt stands, so it is what state hears of. State has heard of what is not ``fresh``."""
    found = []
    for each in done:
        run = runs[each.claim.run_id]
        unfinished = {observed.result.check for observed in each.results if observed.unfinished}
        interval = interval_of(run)
        for check, row in outcome.counting(rows[run.pk]).items():
            if check in unfinished and row.attempt == run.attempt:
                continue
            assert isinstance(row, Result)
            found.append(
                states.Observation(
                    deployment_id=run.deployment_id,
                    check=check,
                    verdict=Verdict(row.verdict),
                    at=row.observed_at,
                    run_id=run.pk,
                    result_id=row.pk,
                    warn=row.warn,
                    severity=row.severity,
                    summary=row.summary,
                    interval=interval,
                    fingerprint=run.fingerprint,
                    zone=states.zone_of(row) if check == "pool" else None,
                    heard=row.pk not in fresh,
                )
            )
    return found


def _kept(runs: dict[int, Run], done: Sequence[Finished], moved: set[int]) -> list[evidence.Kept]:
    """Per node its reading; full answers only where a verdict or a fingerprint of the deployment
    changed, and for active runs always (there the answer is the finding)."""
    kept = []
    for each in done:
        run = runs[each.claim.run_id]
        whole = run.deployment_id in moved or run.kind == "active"
        for _, node in each.nodes:
            if (reading := evidence.reading_of(node)) is not None:
                kept.append(evidence.Kept(run.pk, reading, node.name))
            if whole:
                kept += [evidence.Kept(run.pk, item, node.name) for item in node.evidence]
        if whole:
            kept += [
                evidence.Kept(run.pk, item) for observed in each.results for item in observed.result.evidence
            ]
    return kept
