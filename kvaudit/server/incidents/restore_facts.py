"""What the restore gate looks at, read from the record as it is now."""

from __future__ import annotations

from django.db.models import F, Max

from kvaudit.auditor import checks as known_checks
from kvaudit.auditor.readings import Fingerprint, deployment_digest
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.evidence import run_proof
from kvaudit.server.audits.models import Result, RunState
from kvaudit.server.fleet.models import Deployment, FingerprintChange, NodeSnapshot
from kvaudit.server.incidents import opening, restore_gate
from kvaudit.server.incidents import record_check as rederived
from kvaudit.server.incidents.models import Incident, Replay
from kvaudit.server.incidents.restore_gate import External, Facts, FinishedTest, Requirement

NEWEST = 400
"""Results since the fix that are looked at; the newest of each check decide."""


def fingerprint_of(deployment: Deployment) -> str:
    """The digest of what its nodes said last, "" as long as a node has not been read."""
    nodes = deployment.nodes.filter(valid_to=None)
    rows = NodeSnapshot.objects.filter(current=True, node__in=nodes).values_list("node_id", "fingerprint")
    read = {node_id: Fingerprint.from_json(stored) for node_id, stored in rows}
    if not read or len(read) < nodes.count():
        return ""
    return deployment_digest(read.values())


def facts_of(incident: Incident) -> Facts:
    """What the gate looks at, as it is now. A fixed number of queries."""
    deployment = incident.deployment
    fix = incident.fixes.select_related("fixer").first()
    changed = (
        FingerprintChange.objects.significant()
        .filter(deployment=deployment)
        .order_by("-at")
        .values_list("at", flat=True)
        .first()
    )
    checks = opening.checks_of(incident)
    replays = set(incident.replays.values_list("run_id", flat=True))
    ran: list[FinishedTest] = []
    unproved: dict[int, str] = {}
    if fix is not None:
        rows = (
            Result.objects.filter(
                deployment=deployment,
                check_id__in={*checks, *restore_gate.INTERNAL, *restore_gate.CAPACITY},
                run__state=RunState.FINISHED,
                run__started_at__gt=fix.at,
                id__gt=incident.citations.aggregate(last=Max("result_id"))["last"] or 0,
                # A fail of an earlier attempt stands in the run's verdict; the last attempt's speaks here.
                attempt=F("run__attempt"),
            )
            .select_related("run")
            .order_by("-id")[:NEWEST]
        )
        unproved = run_proof.unproved({row.run_id: row.run for row in rows}.values())
        ran = [_ran(row, row.run_id in replays) for row in rows if row.run.started_at is not None]
        ran = _without_other_replays(ran, replays)
    return Facts(
        fixed_at=fix.at if fix else None,
        fingerprint=fingerprint_of(deployment),
        changed_at=changed,
        cited=opening.lengths_of(incident, checks),
        ran=ran,
        external=[
            External(
                row.at, row.fingerprint, row.leaked, bool(fix and row.uploader_id == fix.fixer_id), row.name
            )
            for row in incident.external_results.all()
        ],
        exact=frozenset(known_checks.where("replayable")),
        failed_at=incident.last_evidence_at,
        doubts=[*unproved.values(), *rederived.tests_differing(incident)],
    )


def _ran(row: Result, replay: bool) -> FinishedTest:
    verdict = Verdict.parse(row.verdict)
    if row.run.verdict == Verdict.FAIL.value and _failed_before(row):
        verdict = Verdict.FAIL
    assert row.run.started_at is not None
    return FinishedTest(
        run_id=row.run_id,
        check=row.check_id,
        verdict=verdict,
        started_at=row.run.started_at,
        observed_at=row.observed_at,
        fingerprint=row.run.fingerprint,
        replay=replay,
        asked=frozenset(known_checks.answered_lengths(row.check_id, row.measures)),
    )


def _failed_before(row: Result) -> bool:
    """A fail of any attempt stands."""
    if row.attempt <= 1:
        return False
    earlier = Result.objects.filter(run=row.run_id, check_id=row.check_id, verdict=Verdict.FAIL.value)
    return earlier.exists()


def _without_other_replays(ran: list[FinishedTest], mine: set[int]) -> list[FinishedTest]:
    """Another incident's replay is neither this one's reproduction nor an internal set."""
    others = set(
        Replay.objects.filter(run__in={test.run_id for test in ran} - mine).values_list("run_id", flat=True)
    )
    return [test for test in ran if test.run_id not in others]


def requirements_of(incident: Incident) -> list[Requirement]:
    """The gate's conditions as they stand now."""
    return restore_gate.requirements(facts_of(incident))
