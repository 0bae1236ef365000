"""Stored bodies go when they are old and nothing rests on them; verdicts, digests and the ledger stay."""

from __future__ import annotations

import hashlib
import zlib
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from kvaudit.server.audits.evidence import retention, run_proof
from kvaudit.server.audits.models import (
    CheckState,
    Evidence,
    PrunedEvidence,
    Result,
    Run,
    RunEvidence,
    RunState,
)
from kvaudit.server.checklists.models import Attestation
from kvaudit.server.incidents.models import Citation
from kvaudit.server.incidents.models.proof import Release, Replay
from kvaudit.server.ledger.grants import grant_statements, retention_statements
from kvaudit.server.ledger.models import Entry
from kvaudit.server.ops.ledger import verify
from tests.factories import a_user
from tests.recorded import recorded
from tests.server.audits.builders import a_run, a_target
from tests.server.checklists.claims import an_attestation
from tests.server.incidents.builders import an_incident

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
    recorded(run)
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


def test_what_was_dropped_is_pruned_and_not_broken(capsys):
    """Each run's digest and the digests of its bodies are kept, so that the run can be proved as before."""
    run = an_old_run("pass", "one", "two")
    before = run_proof.kept_of([run.pk])[run.pk]
    retention.expire()
    row = PrunedEvidence.objects.get(run=run)
    assert row.kept == sorted(list(each) for each in before)
    assert row.digest == run_proof.entries_of([run.pk])[run.pk].digest
    assert Entry.objects.get(kind="evidence.pruned").digest == run_proof.pruned_digest(row)
    assert run_proof.unproved([run]) == {}
    assert verify(["verify"]) == 0
    assert "The evidence of 1 run was pruned after its time" in capsys.readouterr().out


@pytest.mark.parametrize("change", [{"kept": []}, {"digest": "0" * 64}])
def test_a_note_of_what_was_dropped_that_was_changed_is_named(capsys, change):
    an_old_run()
    retention.expire()
    PrunedEvidence.objects.update(**change)
    assert verify(["verify"]) == 1
    assert "Ledger broken." in capsys.readouterr().out


def test_what_was_dropped_otherwise_is_broken(capsys):
    an_old_run()
    RunEvidence.objects.all().delete()
    assert verify(["verify"]) == 1
    assert "what it kept were changed since" in capsys.readouterr().out


def test_a_run_that_was_changed_keeps_its_evidence(caplog):
    """It may show what was changed."""
    changed, sound = an_old_run(), an_old_run()
    Run.objects.filter(pk=changed.pk).update(verdict="inconclusive")
    assert retention.expire().runs == 1
    assert (bodies_of(changed), bodies_of(sound)) == (1, 0)
    assert f"Run {changed.pk} is not what entry" in caplog.text


ROLES = {"retention_test_app": grant_statements, "retention_test_retention": retention_statements}


@pytest.fixture
def become(db):
    """Become a role for the rest of the test."""

    def become(role: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE ROLE {role}")
            for statement in ROLES[role](role):
                cursor.execute(statement)
            cursor.execute(f"SET LOCAL ROLE {role}")

    return become


def test_the_applications_role_cannot_drop_anything(become):
    an_old_run()
    become("retention_test_app")
    for statement in ("DELETE FROM audits_runevidence", "DELETE FROM audits_evidence"):
        with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
            connection.cursor().execute(statement)
    with (
        pytest.raises(CommandError, match=r"may not drop evidence .*DATABASE_RETENTION_URL"),
        transaction.atomic(),
    ):
        call_command("expire_evidence")
    assert Evidence.objects.count() == 1


def test_retentions_role_drops_and_tells_and_does_nothing_else(become, capsys):
    run = an_old_run()
    become("retention_test_retention")
    call_command("expire_evidence")
    assert "Evidence of 1 runs older than 400 days dropped: 1 bodies" in capsys.readouterr().out
    assert Entry.objects.filter(kind="evidence.pruned").count() == 1
    for statement in (
        "UPDATE audits_run SET verdict = 'pass'",
        "DELETE FROM audits_result",
        "INSERT INTO audits_result DEFAULT VALUES",
        "SELECT * FROM accounts_user",
        "SELECT headers_sealed FROM fleet_node",
        "UPDATE audits_evidence SET body = ''",
        "DELETE FROM audits_prunedevidence",
    ):
        with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
            connection.cursor().execute(statement)
    assert bodies_of(run) == 0
