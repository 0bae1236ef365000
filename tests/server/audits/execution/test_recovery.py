"""What nobody else notices, noticed."""

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.execution import claims, recovery, run_task
from kvaudit.server.audits.execution.recording import Observed, record_partly
from kvaudit.server.audits.execution.recovery import recover
from kvaudit.server.audits.models import CheckState, Kind, Overdue, Result, Run, StateChange
from kvaudit.server.fleet.models import FingerprintChange, Node
from kvaudit.server.ledger.models import Entry
from tests.server.audits.builders import a_plan, a_run, a_target, result
from tests.server.audits.execution.test_claims import compete

pytestmark = pytest.mark.django_db


def lose(run):
    """A worker claims the run and is never heard of again; returns its claim."""
    (claim,) = claims.claim([run.pk], kind=Kind(run.kind))
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    return claim


def test_a_lapsed_lease_is_retried_once_then_ends_as_error():
    run = a_run(a_target())
    lose(run)
    assert (recover().retried, Run.objects.get(pk=run.pk).state) == (1, "queued")
    lose(run)
    found = recover()
    run.refresh_from_db()
    assert (found.retried, found.lost) == (0, 1)
    assert (run.state, run.verdict, run.attempt) == ("finished", "error", 2)
    assert "lost twice" in run.summary
    assert set(CheckState.objects.values_list("verdict", flat=True)) == {"error"}
    assert Entry.objects.filter(subject=f"run:{run.pk}", kind="run.finished").count() == 1


def test_a_lease_that_holds_is_left_alone():
    run = a_run(a_target())
    claims.claim([run.pk], kind=Kind.PASSIVE)
    found = recover()
    assert (found.retried, found.lost) == (0, 0)


def test_the_lost_worker_cannot_write_after_its_run_was_given_away(fake_runner):
    run = a_run(a_target())
    stale = lose(run)
    recover()
    run_task.execute([run.pk], kind=Kind.PASSIVE)
    fake_runner.says = {"pool": Verdict.FAIL}
    assert record_partly(stale, Observed(result("pool", Verdict.FAIL), timezone.now())) is False
    run.refresh_from_db()
    assert (run.verdict, run.attempt) == ("pass", 2)
    assert not Result.objects.filter(verdict="fail").exists()


def test_a_fail_of_the_first_attempt_stands(fake_runner):
    run = a_run(a_target(), kind=Kind.ACTIVE)
    claim = lose(run)
    assert record_partly(claim, Observed(result("pool", Verdict.FAIL), timezone.now()))
    recover()
    run_task.execute([run.pk], kind=Kind.ACTIVE)
    run.refresh_from_db()
    assert (run.verdict, run.attempt) == ("fail", 2)
    assert CheckState.objects.get(check_id="pool", closed_at=None).verdict == "fail"
    assert list(run.results.order_by("id").values_list("attempt", "check_id", "verdict")) == [
        (1, "pool", "fail"),
        (2, "pool", "pass"),
        (2, "version", "pass"),
    ]


def test_a_fail_stands_when_the_worker_is_lost_twice():
    run = a_run(a_target(), kind=Kind.ACTIVE)
    claim = lose(run)
    record_partly(claim, Observed(result("pool", Verdict.FAIL), timezone.now()))
    recover()
    lose(run)
    recover()
    run.refresh_from_db()
    assert (run.state, run.verdict) == ("finished", "fail")


def test_a_cancelled_run_is_not_retried():
    run = a_run(a_target())
    lose(run)
    Run.objects.filter(pk=run.pk).update(cancel_requested_at=timezone.now())
    recover()
    run.refresh_from_db()
    assert (run.state, run.verdict) == ("cancelled", "error")
    assert not CheckState.objects.exists()


def test_a_queued_run_past_its_expiry_is_missed_and_told_once():
    target = a_target()
    plan = a_plan(target)
    now = timezone.now()
    for hours in (3, 2):
        a_run(
            target, plan=plan, slot=now - timedelta(hours=hours), expires_at=now - timedelta(hours=hours - 1)
        )
    assert recover().missed == 2
    assert set(Run.objects.values_list("state", "verdict")) == {("missed", None)}
    assert StateChange.objects.filter(what="overdue").count() == 1
    assert Overdue.objects.open().get().since == now - timedelta(hours=3)


def test_a_retry_that_no_worker_takes_ends_as_error():
    run = a_run(a_target())
    lose(run)
    recover()
    Run.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    recover()
    run.refresh_from_db()
    assert (run.state, run.verdict) == ("finished", "error")


def test_a_run_that_waits_too_long_is_overdue_until_one_finishes(fake_runner):
    target = a_target()
    plan = a_plan(target, interval=3600)
    late = timezone.now() - timedelta(minutes=31)
    run = a_run(target, plan=plan, trigger="schedule", slot=late, not_before=late)
    assert recover().overdue == 1
    assert recover().overdue == 0
    run_task.execute([run.pk], kind=Kind.PASSIVE)
    assert not Overdue.objects.open().exists()
    assert list(StateChange.objects.filter(plan=plan).order_by("id").values_list("what", flat=True)) == [
        "overdue",
        "back on schedule",
    ]


def test_nothing_is_overdue_of_a_plan_that_was_switched_off():
    target = a_target()
    plan = a_plan(target)
    Overdue.objects.create(plan=plan, deployment=target, since=timezone.now())
    plan.enabled = False
    plan.save()
    recover()
    assert not Overdue.objects.open().exists()


def test_an_expired_state_becomes_one_row_of_the_timeline(fake_runner):
    run_task.execute([a_run(a_target(), checks=["pool"]).pk], kind=Kind.PASSIVE)
    state = CheckState.objects.get()
    CheckState.objects.update(
        since=state.since - timedelta(days=9),
        last_confirmed=state.since - timedelta(days=8),
        expires_at=state.since - timedelta(days=1),
    )
    assert recover().expired == 1
    assert recover().expired == 0
    change = StateChange.objects.get(what="expired")
    assert (change.check_id, change.before, change.after) == ("pool", "pass", "inconclusive")
    assert change.at == state.since - timedelta(days=1)


def test_a_change_of_the_description_expires_states_once(fake_runner, enqueued):
    target = a_target()
    run_task.execute([a_run(target).pk], kind=Kind.PASSIVE)
    FingerprintChange.objects.create(
        deployment=target,
        node=Node.objects.get(deployment=target),
        at=timezone.now(),
        significant=True,
        summary="a node was removed",
    )
    assert recover().changes == 1
    assert recover().changes == 0
    assert set(CheckState.objects.values_list("expired_by", flat=True)) == {"capacity change"}
    assert Run.objects.filter(trigger="drift", state="queued").count() == 1


@pytest.mark.django_db(transaction=True)
def test_ten_recoveries_at_once_end_a_lost_run_once():
    runs = [a_run(a_target()) for _ in range(8)]
    for run in runs:
        lose(run)
        Run.objects.filter(pk=run.pk).update(attempt=2)
    done = compete(10, recover)
    assert sum(each.lost for each in done) == 8
    assert Entry.objects.filter(kind="run.finished").count() == 8
    assert Result.objects.count() == 16


def test_a_stale_token_of_zero_never_passes_the_fence():
    run = a_run(a_target(), state="running", lease_token=uuid.uuid4(), lease_until=timezone.now())
    assert claims.fence([claims.Claim(run.pk, uuid.UUID(int=0), 1)]) == {}


def test_bounded(monkeypatch):
    monkeypatch.setattr(recovery, "MOST_AT_ONCE", 2)
    for _ in range(3):
        lose(a_run(a_target()))
    assert recover().retried == 2
    assert recover().retried == 1
