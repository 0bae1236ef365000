"""What claimed runs came to, on its way into the database: the rows that `recording` writes, worked out here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kvaudit.auditor.checks.contract import NodeSeen
from kvaudit.auditor.readings import deployment_digest, fingerprint
from kvaudit.auditor.verdict import Result as Concluded
from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.audits.evidence import store as evidence
from kvaudit.server.audits.evidence.canonical import clean, clean_text
from kvaudit.server.audits.execution.claims import Claim
from kvaudit.server.audits.execution.run_verdict import counting
from kvaudit.server.audits.models import Result, Run, StateChange
from kvaudit.server.audits.schedule.plans import period_of
from kvaudit.server.audits.state import intervals, standing
from kvaudit.server.fleet.models import FingerprintChange, Node


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
        return any(result.unfinished for result in self.results)


@dataclass(slots=True)
class Outcome:
    """Runs that the caller has locked (by id), what they came to, and what the steps of `recording` have made of
    it so far: every step reads what those before it have filled in."""

    runs: dict[int, Run]
    done: Sequence[Finished] = ()
    capacity: list[tuple[FingerprintChange, Run]] = field(default_factory=list)  # significant changes
    rows: dict[int, list[Result]] = field(default_factory=dict)  # run id -> results of every attempt
    fresh: set[int] = field(default_factory=set)  # ids of those that this outcome brought
    changes: list[StateChange] = field(default_factory=list)  # for the timeline, saved when they are told

    def pairs(self) -> Iterator[tuple[Run, Finished]]:
        return ((self.runs[each.claim.run_id], each) for each in self.done)

    def new_rows(self) -> list[Result]:
        """Rows of the results that are not stored yet."""
        new = []
        for run, pair in self.pairs():
            there = {(row.attempt, row.check_id) for row in self.rows[run.pk]}
            for observed in pair.results:
                if observed.result.check in run.checks and (run.attempt, observed.result.check) not in there:
                    new.append(_row(run, observed))
                    there.add((run.attempt, observed.result.check))
        return new

    def observations(self) -> list[intervals.Observation]:
        """The results that count of each run, but for the placeholders of a cancellation. A fail of an
        earlier attempt stands, so it is what state hears of. State has heard of what is not fresh."""
        found = []
        for run, pair in self.pairs():
            unfinished = {observed.result.check for observed in pair.results if observed.unfinished}
            interval = interval_of(run)
            for check, row in counting(self.rows[run.pk]).items():
                if check in unfinished and row.attempt == run.attempt:
                    continue
                assert isinstance(row, Result)
                said = standing.of(row)
                found.append(
                    intervals.Observation(
                        deployment_id=run.deployment_id,
                        check=check,
                        verdict=said.verdict,
                        at=row.observed_at,
                        run_id=run.pk,
                        result_id=row.pk,
                        warn=row.warn,
                        severity=said.severity,
                        summary=said.summary,
                        until=said.until,
                        interval=interval,
                        fingerprint=run.fingerprint,
                        zone=intervals.zone_of(row) if check == "pool" else None,
                        heard=row.pk not in self.fresh,
                    )
                )
        return found

    def kept_evidence(self) -> list[evidence.EvidenceOfRun]:
        """Per node its reading; full answers only where a verdict or a fingerprint of the deployment
        changed, and for active runs always (there the answer is the finding)."""
        moved = {change.deployment_id for change in self.changes}
        kept = []
        for run, pair in self.pairs():
            whole = run.deployment_id in moved or run.kind == "active"
            for _, node in pair.nodes:
                if (reading := evidence.reading_of(node)) is not None:
                    kept.append(evidence.EvidenceOfRun(run.pk, reading, node.name))
                if whole:
                    kept += [evidence.EvidenceOfRun(run.pk, item, node.name) for item in node.evidence]
            if whole:
                kept += [
                    evidence.EvidenceOfRun(run.pk, item)
                    for observed in pair.results
                    for item in observed.result.evidence
                ]
        return kept


def fingerprint_of(nodes: Iterable[NodeSeen]) -> str:
    """The digest of a deployment's configuration, as its nodes told it."""
    return deployment_digest(fingerprint(node.facts) for node in nodes if node.facts is not None)


def interval_of(run: Run) -> int:
    """The period of the run's plan in seconds; 0 without a plan."""
    if run.plan is None:
        return 0
    return int(period_of(run.plan, run.slot or run.created_at) / timedelta(seconds=1))


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
