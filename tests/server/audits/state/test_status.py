"""The roll-up of deployments: read, never stored; a fixed number of queries."""

from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.execution import run_task
from kvaudit.server.audits.models import CheckState, Kind, Overdue, Plan
from kvaudit.server.audits.state import deployment_status, status
from tests.server.audits.builders import PASSIVE, a_plan, a_run, a_target

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def passive_checks_only(monkeypatch):
    """As if this build had only the passive checks, whatever has been added since."""
    monkeypatch.setattr(status.checks, "MODULES", PASSIVE)


def audit(target, actor, *, checks=("pool", "version", "drift"), **says):
    actor.says = says
    run_task.execute([a_run(target, checks=checks).pk], kind=Kind.PASSIVE)


def test_all_required_checks_pass(fake_runner):
    target = a_target()
    audit(target, fake_runner)
    now = status.status_of(target)
    assert (now.verdict, now.missing, now.expired) == (Verdict.PASS, [], [])
    assert list(now.checks) == ["pool", "version", "drift"]
    assert now.since == max(check.since for check in now.checks.values())


@pytest.mark.parametrize(
    ("says", "verdict"),
    [
        ({"pool": Verdict.FAIL, "version": Verdict.ERROR}, "fail"),
        ({"version": Verdict.ERROR, "drift": Verdict.INCONCLUSIVE}, "error"),
        ({"drift": Verdict.INCONCLUSIVE}, "inconclusive"),
    ],
)
def test_the_worst_decides(fake_runner, says, verdict):
    target = a_target()
    audit(target, fake_runner, **says)
    assert status.status_of(target).verdict == verdict


def test_a_missing_check_is_never_a_pass(fake_runner):
    target = a_target()
    audit(target, fake_runner, checks=("pool", "version"))
    now = status.status_of(target)
    assert (now.verdict, now.missing) == (Verdict.INCONCLUSIVE, ["drift"])
    assert now.checks["drift"].said is None
    assert now.since is None


def test_nothing_ever_ran():
    now = status.status_of(a_target())
    assert (now.verdict, now.missing) == (Verdict.INCONCLUSIVE, ["pool", "version", "drift"])


@pytest.mark.parametrize(("expired_by", "shown"), [("", "age"), ("capacity change", "capacity change")])
def test_an_expired_pass_is_inconclusive_and_says_what_it_was(fake_runner, expired_by, shown):
    target = a_target()
    audit(target, fake_runner)
    CheckState.objects.filter(check_id="pool").update(
        expires_at=timezone.now() - timedelta(seconds=1), expired_by=expired_by
    )
    now = status.status_of(target)
    assert (now.verdict, now.expired) == (Verdict.INCONCLUSIVE, ["pool"])
    assert (now.checks["pool"].said, now.checks["pool"].expired_by) == (Verdict.PASS, shown)


def test_an_expired_fail_is_not_a_fail_any_more_but_never_a_pass(fake_runner):
    target = a_target()
    audit(target, fake_runner, pool=Verdict.FAIL)
    CheckState.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert status.status_of(target).verdict == Verdict.INCONCLUSIVE


def test_exposure_counts_only_where_a_plan_runs_it(fake_runner):
    target = a_target()
    audit(target, fake_runner, checks=PASSIVE, exposure=Verdict.FAIL)
    now = status.status_of(target)
    assert now.verdict == Verdict.PASS
    assert (now.checks["exposure"].verdict, now.checks["exposure"].required) == (Verdict.FAIL, False)
    a_plan(target, checks=["exposure"])
    assert status.status_of(target).verdict == Verdict.FAIL


@pytest.mark.parametrize("check", ["prefill", "prefix", "concurrency", "session"])
def test_a_leak_found_by_hand_counts_without_a_plan_and_after_it_has_expired(fake_runner, check, monkeypatch):
    monkeypatch.setattr(status.checks, "MODULES", (*PASSIVE, check))
    target = a_target()
    audit(target, fake_runner)
    assert status.status_of(target).verdict == Verdict.PASS
    audit(target, fake_runner, checks=(check,), **{check: Verdict.FAIL})
    now = status.status_of(target)
    assert (now.verdict, now.checks[check].required) == (Verdict.FAIL, False)
    CheckState.objects.filter(check_id=check).update(expires_at=timezone.now())
    assert status.status_of(target).verdict == Verdict.INCONCLUSIVE
    audit(target, fake_runner, checks=(check,), **{check: Verdict.PASS})
    assert status.status_of(target).verdict == Verdict.PASS
    CheckState.objects.filter(check_id=check).update(expires_at=timezone.now())
    assert status.status_of(target).verdict == Verdict.PASS, "nobody planned it, so nobody misses it"


def test_a_check_planned_by_team_or_engine_is_required(fake_runner):
    target = a_target(engine="vllm")
    audit(target, fake_runner)
    a_plan(checks=["exposure"], team=target.team)
    assert status.status_of(target).missing == ["exposure"]


def test_the_past_is_what_it_was_then(fake_runner):
    target = a_target()
    audit(target, fake_runner)
    before = timezone.now()
    audit(target, fake_runner, pool=Verdict.FAIL)
    a_plan(target, checks=["exposure"])
    assert status.status_of(target).verdict == Verdict.FAIL
    then = status.status_of(target, moment=before)
    assert (then.verdict, then.missing) == (Verdict.PASS, [])
    assert status.status_of(target, moment=timezone.now()).verdict == Verdict.FAIL


def test_now_and_as_of_now_agree(fake_runner):
    target = a_target()
    audit(target, fake_runner, version=Verdict.ERROR)
    now, same = status.status_of(target), status.status_of(target, moment=timezone.now())
    assert (now.verdict, dict(now.checks)) == (same.verdict, dict(same.checks))


def test_overdue_is_part_of_the_status():
    target = a_target()
    since = timezone.now() - timedelta(hours=1)
    Overdue.objects.create(plan=a_plan(target), deployment=target, since=since)
    assert status.status_of(target).overdue_since == since


def test_a_fixed_number_of_queries(fake_runner, django_assert_num_queries):
    targets = [a_target() for _ in range(12)]
    for target in targets:
        a_plan(target)
        audit(target, fake_runner)
    with django_assert_num_queries(4):
        found = status.statuses(targets)
    assert len(found) == 12
    with django_assert_num_queries(4):
        status.statuses(targets, moment=timezone.now())
    with django_assert_num_queries(4):
        status.statuses(targets[:1])


def test_history_does_not_make_the_status_dearer(fake_runner, django_assert_num_queries):
    target = a_target()
    for verdict in (Verdict.PASS, Verdict.FAIL) * 5:
        audit(target, fake_runner, pool=verdict)
    assert CheckState.objects.count() > 10
    with django_assert_num_queries(3):  # no plan, so their deployments are not asked for
        assert status.status_of(target).verdict == Verdict.FAIL


def test_a_state_of_a_check_that_this_build_lacks_stands_for_none_of_its_own(fake_runner):
    target = a_target()
    audit(target, fake_runner)
    CheckState.objects.filter(check_id="pool").update(check_id="from-the-future")
    now = status.status_of(target)
    assert now.missing == ["pool"]


def test_required_checks_follow_the_build(monkeypatch):
    monkeypatch.setattr(status.checks, "MODULES", (*PASSIVE, "rejection", "canary"))
    assert deployment_status.required_checks() == ("pool", "version", "drift", "rejection", "canary")
    assert deployment_status.required_checks(["exposure"])[3] == "exposure"


def test_plans_of_a_retired_version_do_not_require(fake_runner):
    target = a_target()
    audit(target, fake_runner)
    a_plan(target, checks=["exposure"])
    Plan.objects.update(valid_to=timezone.now())
    assert status.status_of(target).verdict == Verdict.PASS
