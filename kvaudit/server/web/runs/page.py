"""The Run page: what exactly was tested, with which outcome, on which evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from kvaudit.auditor.runner import CANCELLED
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.execution.run_verdict import counting
from kvaudit.server.audits.models import Result, Run, RunState
from kvaudit.server.incidents.models import Incident
from kvaudit.server.web.kit.parts import checks
from kvaudit.server.web.kit.parts.accumulated_evidence import AccumulatedEvidence, accumulated_of
from kvaudit.server.web.kit.parts.leak_explanation import Mechanism, mechanism_until
from kvaudit.server.web.kit.parts.measures import Measure, readable, stored
from kvaudit.server.web.kit.parts.pool_bar import PoolBar, from_measures
from kvaudit.server.web.kit.parts.reproduce import Reproduction, reproduction_of
from kvaudit.server.web.kit.parts.run_progress import silence, waits
from kvaudit.server.web.runs.canary_matrix import Matrix, matrix_of
from kvaudit.server.web.runs.evidence_list import EvidenceList, evidence_of
from kvaudit.server.web.runs.ledger_proof import Proof, proof_of
from kvaudit.server.web.runs.marker_hits import Hits, hits_of
from kvaudit.server.web.runs.provenance import Provenance, provenance_of
from kvaudit.server.web.runs.rejection_strip import Strip, strip_of

BOUNDS = ("bound", "confidence")
"""How rare leaks are: only a pass may say so."""


@dataclass(frozen=True, slots=True)
class ResultBlock:
    result: Result
    title: str
    measures: Sequence[Measure]
    bar: PoolBar | None
    strip: Strip | None
    matrix: Matrix | None
    hits: Hits | None
    whose: Provenance | None
    together: AccumulatedEvidence | None  # with the runs before it
    stored: str  # the measures as JSON
    evidence: EvidenceList
    mechanism: Mechanism | None = None


TO_DO_WITH = {
    "cites": "rests on what this run found",
    "replayed": "was asked again in this run",
    "released": "was let back on this run",
}
"""What `IncidentQuerySet.of_run` annotates, in words."""


@dataclass(frozen=True, slots=True)
class IncidentLine:
    """An incident and what it has to do with the run."""

    incident: Incident
    said: Sequence[str]


@dataclass(frozen=True, slots=True)
class RunPage:
    run: Run
    sentence: str
    blocks: Sequence[ResultBlock]
    others: Sequence[Result]  # of attempts that do not count: a fail of any attempt stands
    not_reached: Sequence[str]  # checks of the run without a result
    previous: Run | None  # the latest earlier one that has a check in common with it
    common: Sequence[str]  # these checks
    again: Reproduction  # how to ask the same by hand
    proof: Proof
    incidents: Sequence[IncidentLine]


def run_page(run: Run, user: User) -> RunPage:
    """``run`` comes from ``with_results()``."""
    kept = {use.evidence_id for use in run.kept_evidence.all()}
    results = sorted(run.results.all(), key=lambda result: result.pk)
    counted: dict[str, Any] = {**counting(results)}
    folder = ""
    if can(user, "read_evidence", run.deployment.team_id):
        folder = reverse("evidence", args=[run.pk, "-"]).removesuffix("-/")
    last: list[Result] = [counted[name] for name in checks.in_order(list(counted))]
    before = _previous(run)
    explained = next(
        (
            each
            for each in last
            if checks.explained(each.check_id) and Verdict.parse(each.verdict) is Verdict.FAIL
        ),
        None,
    )
    why = mechanism_until(run.deployment_id, run.pk) if explained is not None else None
    return RunPage(
        run=run,
        sentence=sentence(run, last),
        blocks=[_block(each, kept, folder, why if each is explained else None) for each in last],
        others=[result for result in results if result not in last],
        not_reached=[name for name in run.checks if name not in counted],
        previous=before,
        common=[name for name in run.checks if before is not None and name in before.checks],
        again=reproduction_of(run),
        proof=proof_of(run, results),
        incidents=_incidents(run, user),
    )


def _previous(run: Run) -> Run | None:
    """One that ended by itself: a cancelled run may have nothing to compare with. No check is both of a passive and
    of an active audit."""
    earlier = Run.objects.of(run.deployment).filter(
        kind=run.kind, state=RunState.FINISHED, pk__lt=run.pk, checks__overlap=run.checks
    )
    return earlier.order_by("-id").first()


def sentence(run: Run, results: Sequence[Result]) -> str:
    """What the run came to, or how far it is. A run that was cancelled says that first."""
    if run.summary and run.state != RunState.CANCELLED:
        return run.summary
    if run.state == RunState.MISSED:
        more = f" ({run.slots:,} slots)" if run.slots > 1 else ""
        return f"Missed{more}: no worker carried it out in time, so nothing was learnt. It counts as missing."
    if run.state == RunState.QUEUED:
        return waits(run)
    if run.state == RunState.RUNNING:
        done = f"{len(results)} of {len(run.checks)} checks done."
        return f"{quiet} {done}" if (quiet := silence(run)) else f"Being carried out: {done}"
    stopped = [
        result.check_id for result in results if run.state == RunState.CANCELLED and _cut_short(result)
    ]
    by: dict[Verdict, list[str]] = {}
    for result in results:
        if result.check_id in stopped:
            continue
        by.setdefault(Verdict.parse(result.verdict), []).append(result.check_id)
    parts = [
        f"{len(by[verdict])} {word} ({', '.join(by[verdict])})"
        for verdict, word in (
            (Verdict.FAIL, "failed"),
            (Verdict.ERROR, "in error"),
            (Verdict.INCONCLUSIVE, "inconclusive"),
            (Verdict.PASS, "passed"),
        )
        if verdict in by
    ]
    if run.state == RunState.CANCELLED:
        if stopped:
            parts.append(f"{len(stopped)} not carried out ({', '.join(stopped)})")
        who = f" by {run.cancel_requested_by.get_username()}" if run.cancel_requested_by else ""
        if run.started_at is None:
            return f"Cancelled{who} before it began."
        return f"Cancelled{who} before it was done: {', '.join(parts) or 'no check was carried out'}."
    return f"{len(results)} of {len(run.checks)} checks concluded: {', '.join(parts) or 'none'}."


def _cut_short(result: Result) -> bool:
    """An error that says only that somebody cancelled the run."""
    return Verdict.parse(result.verdict) is Verdict.ERROR and result.summary == CANCELLED


def _incidents(run: Run, user: User) -> list[IncidentLine]:
    """One query."""
    found = Incident.objects.visible_to(user).of_run(run)
    return [
        IncidentLine(incident, [said for name, said in TO_DO_WITH.items() if getattr(incident, name)])
        for incident in found
    ]


def _block(result: Result, kept: set[str], folder: str, why: Mechanism | None) -> ResultBlock:
    measures: Mapping[str, Any] = result.measures if isinstance(result.measures, dict) else {}
    drawn: Sequence[str] = (*checks.drawn(result.check_id), "provenance")
    if Verdict.parse(result.verdict) is not Verdict.PASS:
        drawn = (*drawn, *BOUNDS)
    evidence = evidence_of(
        result.evidence if isinstance(result.evidence, list) else (), kept, result.pk, folder
    )
    return ResultBlock(
        result=result,
        title=checks.title(result.check_id),
        measures=readable({name: measure for name, measure in measures.items() if name not in drawn}),
        bar=from_measures(measures) if result.check_id == "pool" else None,
        strip=strip_of(measures, evidence.at) if result.check_id == "rejection" else None,
        matrix=matrix_of(measures, evidence.at) if result.check_id == "canary" else None,
        hits=hits_of(measures, evidence.at) if result.check_id in ("canary", "concurrency") else None,
        whose=provenance_of(measures),
        together=accumulated_of(result),
        stored=stored(measures),
        evidence=evidence,
        mechanism=why,
    )
