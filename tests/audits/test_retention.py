"""Stored bodies go when they are old and nothing rests on them; verdicts, digests and the ledger stay."""

from __future__ import annotations

import hashlib
import zlib
from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.audits import retention
from kvaudit.audits.models import CheckState, Evidence, Result, Run, RunEvidence, RunState
from kvaudit.checklists.models import Attestation
from kvaudit.incidents.models import Citation
from kvaudit.incidents.proof import Release, Replay
from kvaudit.ledger.models import Entry
from tests.audits.stage import a_run, a_target
from tests.checklists.claims import an_attestation
from tests.factories import a_user
from tests.incidents.stage import an_incident

pytestmark = pytest.mark.django_db


def kept(run: Run, *bodies: str) -> None:
    for body in bodies:
        name = hashlib.sha256(body.encode()).hexdigest()
        evidence, _ = Evidence.objects.get_or_create(
            sha256=name, defaults={"size": len(body), "body": zlib.compress(body.encode())}
        )
        RunEvidence.objects.create(run=run, evidence=evidence, kind="response", source="GET /server_info")


def an_old_run(verdict: str = "pass", *bodies: str, days: float = 401) -> Run:
    ended = timezone.now() - timedelta(days=days)
    run = a_run(a_target(), state=RunState.FINISHED, verdict=verdict, finished_at=ended)
    kept(run, *(bodies or (f"answer of {run.pk}",)))
    return run


def bodies_of(run: Run) -> int:
    return run.kept_evidence.count()


def test_old_bodies_go_and_the_record_says_so():
    old, young = an_old_run("pass", "shared", "alone"), an_old_run("pass", "shared", days=399)
    gone = retention.expire()
    assert (gone.runs, gone.bodies, gone.bytes) == (1, 1, len("alone"))
    assert (bodies_of(old), bodies_of(young)) == (0, 1)
    assert Evidence.objects.count() == 1  # what the younger run keeps
    entry = Entry.objects.get(kind="evidence.expired")
    assert entry.actor == "system:retention"
    assert entry.subject == f"runs:{old.pk}-{old.pk}"
    assert Run.objects.filter(pk=old.pk, verdict="pass").exists()
    assert retention.expire().runs == 0


@pytest.mark.parametrize("verdict", ["inconclusive", "error"])
def test_what_learnt_nothing_goes_too(verdict):
    run = an_old_run(verdict)
    retention.expire()
    assert bodies_of(run) == 0


def test_what_a_failing_run_saw_stays():
    run = an_old_run("fail")
    assert retention.expire().runs == 0
    assert bodies_of(run) == 1


def test_zero_days_keep_everything(settings):
    settings.AUDIT_EVIDENCE_DAYS = 0
    run = an_old_run()
    assert retention.expire().runs == 0
    assert bodies_of(run) == 1


def rests_state(run: Run) -> None:
    at = run.finished_at
    result = Result.objects.filter(run=run).first()
    CheckState.objects.create(
        deployment=run.deployment, check_id="pool", verdict="pass", since=at, last_confirmed=at, run=run,
        expires_at=at, result=result,
    )  # fmt: skip


def is_replay(run: Run) -> None:
    Replay.objects.create(
        incident=an_incident(run.deployment), run=run, original=an_old_run(), asked_by="ada"
    )


def was_replayed(run: Run) -> None:
    Replay.objects.create(
        incident=an_incident(run.deployment), run=an_old_run(), original=run, asked_by="ada"
    )


def is_cited(run: Run) -> None:
    result = Result.objects.filter(run=run).first()
    Citation.objects.create(incident=an_incident(run.deployment), result=result, at=run.finished_at)


def released(run: Run) -> None:
    release = Release.objects.create(
        incident=an_incident(run.deployment), released_by=a_user(), fingerprint="f" * 64, grounds={}
    )
    release.runs.add(run)


@pytest.mark.parametrize("rest", [rests_state, is_replay, was_replayed, is_cited, released])
def test_what_something_rests_on_stays(rest):
    run = an_old_run()
    Result.objects.create(
        run=run, deployment=run.deployment, check_id="pool", verdict="pass", summary="It holds.", attempt=1,
        observed_at=run.finished_at,
    )  # fmt: skip
    rest(run)
    retention.expire()
    assert bodies_of(run) == 1


def test_a_body_that_an_attestation_names_outlives_its_run():
    run = an_old_run("pass", "a scan of the rack")
    evidence = run.kept_evidence.get().evidence
    Attestation.objects.filter(pk=an_attestation(run.deployment, "D").pk).update(evidence=evidence)
    assert retention.expire().runs == 1
    assert bodies_of(run) == 0
    assert Evidence.objects.filter(pk=evidence.pk).exists()
