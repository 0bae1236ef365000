"""Rows that were changed under an intact chain: the verification names them, and no gate opens on them."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.execution import claims, run_task
from kvaudit.server.audits.execution.recording import Observed, record_partly
from kvaudit.server.audits.models import CheckState, Evidence, Kind, Result, Run, RunEvidence
from kvaudit.server.audits.state import record_check
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.incidents import traffic_gate
from kvaudit.server.ledger.models import Entry
from kvaudit.server.ledger.services import record
from kvaudit.server.ops.ledger import verify
from tests.recorded import recorded
from tests.server.audits.builders import FakeRunner, a_plan, a_run, a_target, result

pytestmark = pytest.mark.django_db
CHECKS = ("pool", "version", "drift")


@pytest.fixture
def audited(fake_runner: FakeRunner) -> Deployment:
    """Two runs of the passive checks: all pass, then pool fails; and one by a plan."""
    target = a_target("glm-prod")
    audit(target)
    fake_runner.says["pool"] = Verdict.FAIL
    audit(target)
    audit(target, plan=a_plan(target, checks=("version",)), checks=("version",))
    return target


def audit(target: Deployment, **fields: object) -> Run:
    run = a_run(target, **{"checks": CHECKS, **fields})
    run_task.execute([run.pk], kind=run.kind)
    run.refresh_from_db()
    assert run.state == "finished"
    return run


def verified(capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    code = verify(["verify"])
    return code, capsys.readouterr().out


def test_what_audits_left_is_in_order(audited, capsys, django_assert_num_queries):
    with django_assert_num_queries(8):
        assert record_check.doubts(audited) == []
    assert verified(capsys)[0] == 0


def failed() -> CheckState:
    return CheckState.objects.get(check_id="pool", closed_at=None)


def a_state_says_pass(target: Deployment) -> None:
    CheckState.objects.filter(pk=failed().pk).update(verdict="pass", severity="", summary="pool says pass")


def results_say_pass(target: Deployment) -> None:
    Result.objects.filter(verdict="fail").update(verdict="pass", severity="", summary="pool says pass")


def everything_says_pass(target: Deployment) -> None:
    a_state_says_pass(target)
    results_say_pass(target)
    Run.objects.filter(verdict="fail").update(verdict="pass", summary="pass")


def the_interval_is_closed(target: Deployment) -> None:
    CheckState.objects.filter(pk=failed().pk).update(closed_at=timezone.now())


def the_interval_is_gone(target: Deployment) -> None:
    CheckState.objects.filter(pk=failed().pk).delete()


def an_older_pass_is_confirmed(target: Deployment) -> None:
    """The fail is closed, and the pass before it put in its place."""
    before = CheckState.objects.get(check_id="pool", closed_at__isnull=False)
    now = timezone.now()
    CheckState.objects.filter(pk=failed().pk).update(closed_at=now)
    forged = CheckState.objects.get(pk=before.pk)
    forged.pk, forged.closed_at, forged.since, forged.last_confirmed = None, None, now, now
    forged.expires_at = now + timedelta(days=7)
    forged.save(force_insert=True)


def the_fail_is_taken_out_and_the_pass_reopened(target: Deployment) -> None:
    CheckState.objects.filter(pk=failed().pk).delete()
    CheckState.objects.filter(check_id="pool").update(closed_at=None)


def a_run_that_nobody_audited(target: Deployment) -> None:
    """Run, result and interval, but no entry."""
    now = timezone.now()
    CheckState.objects.filter(pk=failed().pk).update(closed_at=now)
    run = a_run(
        target, checks=["pool"], state="finished", verdict="pass", attempt=1, started_at=now, finished_at=now
    )
    row = Result.objects.create(
        run=run,
        deployment=target,
        attempt=1,
        check_id="pool",
        verdict="pass",
        summary="fine",
        observed_at=now,
    )
    CheckState.objects.create(
        deployment=target, check_id="pool", verdict="pass", summary="fine", since=now, last_confirmed=now,
        expires_at=now + timedelta(days=7), run=run, result=row,
    )  # fmt: skip


def a_state_that_lasts_for_ever(target: Deployment) -> None:
    CheckState.objects.filter(check_id="drift").update(expires_at=timezone.now() + timedelta(days=4_000))


def an_interval_of_years(target: Deployment) -> None:
    later = timezone.now() + timedelta(days=4_000)
    CheckState.objects.filter(check_id="version", closed_at=None).update(
        interval=300_000_000, expires_at=later
    )


def when_it_began(target: Deployment) -> None:
    Run.objects.filter(verdict="fail").update(started_at=F("started_at") + timedelta(days=1))


def when_it_was_seen(target: Deployment) -> None:
    Result.objects.filter(verdict="fail").update(observed_at=F("observed_at") - timedelta(days=1))


def measures(target: Deployment) -> None:
    Result.objects.filter(verdict="fail").update(measures={"edge_limit_refused": True})


def evidence_is_gone(target: Deployment) -> None:
    RunEvidence.objects.filter(run__verdict="fail").delete()


def evidence_is_put_in(target: Deployment) -> None:
    body = b"{}"
    kept = Evidence.objects.create(sha256=hashlib.sha256(body).hexdigest(), size=2, body=zlib.compress(body))
    RunEvidence.objects.create(
        run=Run.objects.get(verdict="fail"), evidence=kept, kind="response", source="GET /server_info"
    )


def a_cancelled_run(target: Deployment) -> None:
    Run.objects.filter(verdict="fail").update(state="cancelled")


def the_fail_was_cut_short(target: Deployment) -> None:
    """Its end is moved to where it began, as if another fail covered it."""
    state = failed()
    CheckState.objects.filter(pk=state.pk).update(closed_at=state.since, last_confirmed=state.since)
    before = CheckState.objects.filter(check_id="pool", closed_at__isnull=False).earliest("pk")
    CheckState.objects.filter(pk=before.pk).update(closed_at=None)


TAMPERING = [
    the_fail_was_cut_short, a_state_says_pass, results_say_pass, everything_says_pass, the_interval_is_closed, the_interval_is_gone,
    an_older_pass_is_confirmed, the_fail_is_taken_out_and_the_pass_reopened, a_run_that_nobody_audited,
    a_state_that_lasts_for_ever, an_interval_of_years, when_it_began, when_it_was_seen, measures, evidence_is_gone,
    evidence_is_put_in, a_cancelled_run,
]  # fmt: skip


@pytest.mark.parametrize("tamper", TAMPERING)
def test_it_is_named_and_the_gate_is_an_error(
    audited: Deployment, capsys: pytest.CaptureFixture[str], tamper: Callable[[Deployment], None]
) -> None:
    tamper(audited)
    code, said = verified(capsys)
    assert code == 1, said
    assert said.startswith("Ledger broken. ")
    answer = traffic_gate.answer(audited)
    assert answer.verdict in (Verdict.ERROR, Verdict.FAIL)
    assert any(reason.check == "record" and reason.verdict is Verdict.ERROR for reason in answer.reasons)


def test_a_run_that_is_gone_is_named(audited, capsys):
    run = Run.objects.earliest("pk")
    CheckState.objects.filter(run=run).delete()
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM audits_statechange; DELETE FROM audits_runevidence; DELETE FROM audits_result"
        )
        cursor.execute("DELETE FROM audits_checkstate; DELETE FROM audits_run WHERE id = %s", [run.pk])
    code, said = verified(capsys)
    assert (code, f"Run {run.pk}, whose end entry" in said) == (1, True)


def test_a_second_entry_of_a_run_vouches_for_nothing(audited, capsys):
    """Whoever may append writes the digest of what they made of the rows."""
    everything_says_pass(audited)
    recorded(Run.objects.get(pk=failed().run_id))
    code, said = verified(capsys)
    assert (code, "is not what entry" in said) == (1, True)
    assert traffic_gate.answer(audited).verdict is Verdict.ERROR


def test_an_entry_before_the_end_is_found_out(fake_runner, capsys):
    run = a_run(a_target(), checks=CHECKS)
    record(actor="system:worker", kind="run.finished", subject=f"run:{run.pk}", digest="0" * 64)
    run_task.execute([run.pk], kind=run.kind)
    assert verified(capsys)[0] == 1


@pytest.mark.parametrize("subject", ["run:", "run:x", "run:007", "run:99999999999999999999999", "nothing"])
def test_an_entry_of_a_run_that_has_no_such_name_is_a_sentence(capsys, subject):
    record(actor="system:worker", kind="run.finished", subject=subject, digest="0" * 64)
    code, said = verified(capsys)
    assert (code, "Entry 1 records the end of a run that it does not name" in said) == (1, True)


def test_a_result_of_a_run_that_goes_on_is_vouched_for_at_once(fake_runner, capsys):
    target = a_target()
    run = a_run(target, kind="active", checks=("canary", "rejection"))
    (claim,) = claims.claim([run.pk], kind=Kind.ACTIVE)
    assert record_partly(claim, Observed(result("canary", Verdict.FAIL), timezone.now()))
    assert record_check.doubts(target) == []
    assert Entry.objects.get(kind="result.recorded").subject == f"run:{run.pk} attempt:1 check:canary"
    assert verified(capsys)[0] == 0
    Result.objects.update(verdict="pass", summary="canary says pass")
    CheckState.objects.update(verdict="pass", summary="canary says pass")
    assert "is not what the ledger recorded when it came" in record_check.doubts(target)[0]
    assert verified(capsys)[0] == 1


def test_digests_of_the_first_release_still_hold(audited, capsys):
    """Their entries did not cover what a run kept, nor when it began."""
    from kvaudit.server.audits.execution import run_verdict

    for run in Run.objects.filter(state="finished"):
        entry = Entry.objects.get(subject=f"run:{run.pk}", kind="run.finished")
        old = run_verdict.digest(run_verdict.identity(run), run.results.all())
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE ledger_entry DISABLE TRIGGER USER")
            cursor.execute("UPDATE ledger_entry SET digest = %s WHERE sequence = %s", [old, entry.pk])
            cursor.execute("ALTER TABLE ledger_entry ENABLE TRIGGER USER")
    assert record_check.contradicted() == ""
    assert all("is not what" not in doubt for doubt in record_check.doubts(audited))
