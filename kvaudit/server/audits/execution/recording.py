"""Writing down what a worker found: results, readings, state, evidence, what follows, and the ledger's entry of each
run, in one transaction, behind the fence of the claim. `STEPS` is the order.

Lock order, the same everywhere: runs, deployments, nodes, state; the ledger's chain last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from django.db import transaction

from kvaudit.auditor.checks.contract import NodeSeen
from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.audits import alerts
from kvaudit.server.audits.evidence import run_proof as proving
from kvaudit.server.audits.evidence import store as evidence
from kvaudit.server.audits.execution import rerun_rules, run_verdict, suspension
from kvaudit.server.audits.execution.claims import Claim, fence
from kvaudit.server.audits.execution.outcome import Finished, Observed, Outcome, fingerprint_of
from kvaudit.server.audits.models import Result, Run, RunState
from kvaudit.server.audits.state import intervals, standing
from kvaudit.server.fleet.snapshot_writer import RunReadings, record_batch
from kvaudit.server.ledger.services import Act, record_all

WORKER = "system:worker"


@transaction.atomic
def finish(batch: Sequence[Finished]) -> set[int]:
    """End these runs; returns the ids of those that were still ours. The others leave no trace."""
    runs = fence(finished.claim for finished in batch)
    write(runs, [finished for finished in batch if finished.claim.run_id in runs])
    return set(runs)


def write(runs: dict[int, Run], done: Sequence[Finished]) -> None:
    """End runs that the caller has locked (`finish`, or the recovery of lost ones)."""
    if done:
        outcome = Outcome(runs, done)
        for step in STEPS:
            step(outcome)


@transaction.atomic
def record_partly(claim: Claim, observed: Observed, nodes: Iterable[NodeSeen] = ()) -> bool:
    """Keep one result of a long run at once, with what it means for state: a fail stands, and is
    told, whatever happens to the worker. ``nodes`` are what the run has read, so that its state names
    the configuration it speaks of. False when the run is no longer ours."""
    run = fence([claim]).get(claim.run_id)
    if run is None:
        return False
    run.fingerprint = fingerprint_of(nodes)
    outcome = Outcome({run.pk: run}, [Finished(claim, [observed])])
    lock_deployments(outcome)
    keep_results(outcome)
    move_states(outcome)
    evidence.store_evidence(evidence.EvidenceOfRun(run.pk, item) for item in observed.result.evidence)
    suspend_wedged(outcome)
    tell(outcome)
    # State rests on it from now on, and the run's own entry comes only with its end.
    record_all(
        actor=WORKER,
        acts=[
            Act(proving.RECORDED, proving.subject_of(row), run_verdict.result_digest(row))
            for row in outcome.rows[run.pk]
            if (row.attempt, row.check_id) == (run.attempt, observed.result.check)
        ],
    )
    return True


def lock_deployments(outcome: Outcome) -> None:
    """Lock the deployments of these runs for the rest of the transaction."""
    deployments = intervals.lock_deployments(run.deployment_id for run in outcome.runs.values())
    for run in outcome.runs.values():
        run.deployment = deployments[run.deployment_id]


def keep_readings(outcome: Outcome) -> None:
    """Keep what was read of nodes, and the fingerprint of each run; note significant changes of capacity."""
    batch = []
    for run, pair in outcome.pairs():
        run.fingerprint = fingerprint_of(node for _, node in pair.nodes)
        batch.append(RunReadings(run.deployment, pair.nodes, pair.read_at))
    found = zip(outcome.pairs(), record_batch(batch), strict=True)
    outcome.capacity = [(change, run) for (run, _), changes in found for change in changes]


def follow_capacity(outcome: Outcome) -> None:
    """Expire what was known before a change of capacity, and queue the gate again."""
    outcome.changes += rerun_rules.capacity_changes(outcome.capacity)


def keep_results(outcome: Outcome) -> None:
    """Insert the results that are not there yet, beside those of earlier attempts."""
    outcome.rows = {run_id: [] for run_id in outcome.runs}
    several = [run for run in outcome.runs.values() if run.kind == "active" or run.attempt > 1]
    for row in Result.objects.filter(run__in=several):
        outcome.rows[row.run_id].append(row)
    new = outcome.new_rows()
    standing.add(new)
    for row in Result.objects.bulk_create(new):
        outcome.rows[row.run_id].append(row)
        outcome.fresh.add(row.pk)


def move_states(outcome: Outcome) -> None:
    """Continue, close and open the intervals of state that these results speak of."""
    outcome.changes += intervals.apply(outcome.observations())


def keep_evidence(outcome: Outcome) -> None:
    """Keep readings, and whole answers where something changed."""
    evidence.store_evidence(outcome.kept_evidence())


def conclude(outcome: Outcome) -> None:
    """Give every run its verdict, state and sentence. In memory: `store_ends` writes them."""
    for run, pair in outcome.pairs():
        rows = outcome.rows[run.pk]
        run.progress = {**run.progress, "nodes": len(pair.nodes), "read": len(pair.nodes)}
        run.verdict = run_verdict.verdict_of(run.checks, rows).value
        run.warn = any(row.warn for row in run_verdict.counting(rows).values())
        run.state = RunState.CANCELLED if pair.cancelled else RunState.FINISHED
        run.summary = run_verdict.sentence(run.checks, rows, Verdict(run.verdict))
        run.tokens_spent = max(run.tokens_spent, pair.tokens_spent)


def store_ends(outcome: Outcome) -> None:
    """Store the ends of runs whose state and verdict are set, and close what was overdue."""
    ended = list(outcome.runs.values())
    for run in ended:
        run.lease_token, run.lease_until, run.finished_at = None, None, clock.now()
        counted = run_verdict.counting(outcome.rows[run.pk])
        run.progress = {
            **run.progress,
            "checks": {check: counted[check].verdict if check in counted else "" for check in run.checks},
        }
    stored = ("state", "verdict", "warn", "summary", "fingerprint", "tokens_spent", "progress")
    Run.objects.bulk_update(ended, [*stored, "lease_token", "lease_until", "finished_at"])
    outcome.changes += rerun_rules.back_on_schedule(run for run in ended if run.state == RunState.FINISHED)


def suspend_wedged(outcome: Outcome) -> None:
    """Suspend the active checks of deployments that a prompt stopped from answering."""
    for run in outcome.runs.values():
        outcome.changes += suspension.suspensions(run, outcome.rows[run.pk])


def queue_reruns(outcome: Outcome) -> None:
    """Queue the one re-run of what became inconclusive, and `drift` where the gate is complete now."""
    finished = [run for run in outcome.runs.values() if run.state == RunState.FINISHED]
    rerun_rules.rerun_inconclusive(finished)
    rerun_rules.drift_again(finished)


def tell(outcome: Outcome) -> None:
    """Save what changed for the timeline, and put messages about it into the outbox."""
    alerts.save_and_notify(outcome.changes)


def enter_in_ledger(outcome: Outcome) -> None:
    """One entry per run over its results and its evidence in canonical order. Last in the transaction: it holds the
    end of the chain."""
    ended = sorted(outcome.runs.values(), key=lambda run: run.pk)
    kept = proving.kept_of(run.pk for run in ended)
    record_all(
        actor=WORKER,
        acts=[
            Act(
                f"run.{run.state}",
                f"run:{run.pk}",
                run_verdict.whole_digest(run, outcome.rows[run.pk], kept[run.pk]),
            )
            for run in ended
        ],
    )


STEPS: tuple[Callable[[Outcome], None], ...] = (
    lock_deployments,
    keep_readings,
    follow_capacity,
    keep_results,
    move_states,
    keep_evidence,
    conclude,
    store_ends,
    suspend_wedged,
    queue_reruns,
    tell,
    enter_in_ledger,
)
"""How runs end, in this order: later steps read what earlier ones wrote, and locks are taken as above."""
