"""What a finished run leaves behind: results, evidence by content, messages, ledger."""

import hashlib
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kvaudit.auditor.verdict import Evidence as Seen
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.evidence import store as evidence
from kvaudit.server.audits.execution import recording, run_task, run_verdict
from kvaudit.server.audits.models import CheckState, Evidence, Kind, Result, Run, RunEvidence, StateChange
from kvaudit.server.ledger.models import Entry
from kvaudit.server.notify.models import Channel, OutboxMessage
from tests.server.audits.builders import a_plan, a_run, a_target, facts, result

pytestmark = pytest.mark.django_db


def body(text):
    data = text.encode()
    return Seen(
        "response", hashlib.sha256(data).hexdigest(), "GET http://node/server_info", data, "application/json"
    )


def audit(target, **fields):
    run = a_run(target, **fields)
    run_task.execute([run.pk], kind=Kind(run.kind))
    run.refresh_from_db()
    return run


def test_the_ledger_holds_a_digest_that_can_be_computed_again_from_the_rows(fake_runner):
    fake_runner.says = {
        "pool": result(
            "pool", measures={"ratio": 1.0, "big": 1e22, "tiny": 1e-7, "nan": float("nan"), "t": (1, 2)}
        )
    }
    run = audit(a_target())
    run = Run.objects.get(pk=run.pk)
    entry = Entry.objects.get(subject=f"run:{run.pk}")
    kept = run.kept_evidence.values_list("kind", "evidence_id", "source", "node_name")
    assert entry.digest == run_verdict.whole_digest(run, Result.objects.filter(run=run), kept)


def test_a_changed_result_no_longer_matches_the_ledger(fake_runner):
    run = audit(a_target())
    Result.objects.filter(run=run, check_id="pool").update(verdict="fail")
    entry = Entry.objects.get(subject=f"run:{run.pk}")
    kept = run.kept_evidence.values_list("kind", "evidence_id", "source", "node_name")
    assert entry.digest != run_verdict.whole_digest(run, Result.objects.filter(run=run), kept)


def test_text_that_postgresql_refuses_is_stored_without_it(fake_runner):
    fake_runner.says = {"pool": result("pool", summary="nul\x00 and \ud800", measures={"a\x00": ["\x00"]})}
    run = audit(a_target())
    row = run.results.get(check_id="pool")
    assert run.verdict == "pass"
    assert row.summary == "nul\ufffd and ?"
    assert row.measures == {"a\ufffd": ["\ufffd"]}


def test_a_thousand_equal_readings_are_one_piece_of_evidence(fake_runner):
    target = a_target()
    for _ in range(5):
        audit(target)
    assert Evidence.objects.count() == 1
    assert RunEvidence.objects.count() == 5
    kept = RunEvidence.objects.first()
    assert kept.kind == "reading"
    assert b'"source":"GET /server_info"' in evidence.body_of(kept.evidence)


def test_full_answers_are_kept_only_when_a_verdict_or_the_fingerprint_changed(fake_runner):
    target = a_target()
    fake_runner.bodies = [body("first")]
    audit(target)
    fake_runner.bodies = [body("second")]
    audit(target)
    assert not Evidence.objects.filter(pk=body("second").sha256).exists()
    fake_runner.bodies, fake_runner.says = [body("third")], {"pool": Verdict.FAIL}
    audit(target)
    fake_runner.bodies, fake_runner.facts = [body("fourth")], {target.slug: facts(version="0.5.23")}
    audit(target)
    kept = set(Evidence.objects.values_list("pk", flat=True))
    assert {body("first").sha256, body("third").sha256, body("fourth").sha256} <= kept
    assert body("second").sha256 not in kept


def test_evidence_is_named_by_what_it_is_not_by_what_it_claims():
    run = a_run(a_target())
    lie = Seen("response", "0" * 64, "GET /", b"other bytes")
    evidence.store_evidence([evidence.EvidenceOfRun(run.pk, lie)])
    assert Evidence.objects.get().pk == hashlib.sha256(b"other bytes").hexdigest()


def test_tampered_evidence_is_noticed():
    run = a_run(a_target())
    evidence.store_evidence([evidence.EvidenceOfRun(run.pk, body("original"))])
    stored = Evidence.objects.get()
    assert evidence.body_of(stored) == b"original"
    evidence.store_evidence([evidence.EvidenceOfRun(run.pk, body("other"))])
    stored.body = Evidence.objects.exclude(pk=stored.pk).get().body
    with pytest.raises(ValueError, match="not what was stored"):
        evidence.body_of(stored)


@pytest.fixture
def channel():
    return Channel.objects.create(
        name="all", kind="webhook", address_sealed="x", address_shown="https://example.org"
    )


def test_a_fail_is_told_once_and_again_only_after_it_was_gone(fake_runner, channel):
    target = a_target()
    for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.FAIL, Verdict.PASS, Verdict.FAIL):
        fake_runner.says = {"pool": verdict}
        audit(target)
    messages = OutboxMessage.objects.filter(event="fail")
    assert messages.count() == 2
    assert messages.first().payload["deployment"] == target.slug
    assert messages.first().payload["deployments"][0]["changes"][0]["check"] == "pool"


def test_several_checks_of_a_deployment_are_one_message(fake_runner, channel):
    fake_runner.says = {"pool": Verdict.ERROR, "version": Verdict.ERROR}
    audit(a_target())
    message = OutboxMessage.objects.get()
    assert "(and 1 more)" in message.subject
    assert len(message.payload["deployments"][0]["changes"]) == 2


def test_a_rack_that_goes_dark_is_one_message(fake_runner, channel):
    first = a_target()
    targets = [first, *(a_target(team=first.team) for _ in range(11))]
    fake_runner.says = {"pool": Verdict.FAIL}
    runs = [a_run(target) for target in targets]
    run_task.execute([run.pk for run in runs], kind=Kind.PASSIVE)
    assert OutboxMessage.objects.get().subject.startswith("12 deployments")


def test_inconclusive_and_warnings_are_not_told(fake_runner, channel):
    fake_runner.says = {"pool": Verdict.INCONCLUSIVE, "version": result("version", warn=True)}
    run = audit(a_target())
    assert run.warn
    assert StateChange.objects.count() == 2
    assert not OutboxMessage.objects.exists()


def test_the_state_expires_by_the_plans_interval_and_a_manual_run_does_not_shorten_it(fake_runner):
    target = a_target()
    plan = a_plan(target, interval=30 * 86400)
    audit(target, plan=plan, trigger="schedule", slot=timezone.now())
    audit(target)
    state = CheckState.objects.get(check_id="pool")
    assert state.expires_at - state.last_confirmed == timedelta(days=45)


def test_writing_many_runs_takes_a_fixed_number_of_statements(fake_runner, monkeypatch):
    targets = [a_target() for _ in range(25)]
    run_task.execute([a_run(target).pk for target in targets], kind=Kind.PASSIVE)
    finish, counts = recording.finish, []

    def counted(batch):
        with CaptureQueriesContext(connection) as captured:
            done = finish(batch)
        counts.append((len(done), len(captured)))
        return done

    monkeypatch.setattr(recording, "finish", counted)
    run_task.execute([a_run(target).pk for target in targets], kind=Kind.PASSIVE)
    assert sum(size for size, _ in counts) == 25
    assert all(statements <= 30 for _, statements in counts), counts
