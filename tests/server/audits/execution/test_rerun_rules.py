"""A capacity change expires and re-runs; an inconclusive is re-run once."""

from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.execution import run_task
from kvaudit.server.audits.models import CheckState, Kind, Run, StateChange
from kvaudit.server.audits.state import status
from kvaudit.server.audits.state.history import history_for
from kvaudit.server.fleet.models import Node
from tests.factories import a_node
from tests.server.audits.builders import a_plan, a_run, a_target, facts, result

pytestmark = pytest.mark.django_db


def audit(target, **fields):
    run = a_run(target, **fields)
    run_task.execute([run.pk], kind=Kind(run.kind))
    run.refresh_from_db()
    return run


def drift_runs():
    return Run.objects.filter(trigger="drift")


def test_a_capacity_change_is_recorded_expires_and_queues_the_gate(
    fake_runner, enqueued, django_capture_on_commit_callbacks
):
    target = a_target()
    audit(target, checks=["pool", "version", "exposure"])
    fake_runner.facts = {target.slug: facts(pool=681_280)}
    with django_capture_on_commit_callbacks(execute=True):
        run = audit(target, checks=["pool"])
    change = StateChange.objects.get(what="capacity")
    assert (change.run, change.deployment) == (run, target)
    assert [(row["name"], row["before"], row["after"]) for row in change.detail["diff"]] == [
        ("pool", 2_000_000, 681_280)
    ]
    now = status.status_of(target)
    assert now.checks["pool"].verdict == Verdict.PASS  # judged on the new pool
    assert now.checks["version"].expired_by == "capacity change"
    assert now.checks["exposure"].expired_by == "capacity change"
    again = drift_runs().get()
    assert (again.kind, again.checks, again.slot, again.plan) == (
        "passive",
        ["pool", "version", "drift"],
        None,
        None,
    )
    assert ("passive", [again.pk]) in enqueued


def test_a_restart_that_moves_the_pool_by_one_percent_is_none(fake_runner):
    target = a_target()
    audit(target)
    fake_runner.facts = {target.slug: facts(pool=1_985_000)}
    audit(target)
    assert not StateChange.objects.filter(what="capacity").exists()
    assert not drift_runs().exists()
    assert CheckState.objects.count() == 2


def test_the_first_reading_is_no_change(fake_runner):
    audit(a_target())
    assert not drift_runs().exists()


def test_several_nodes_that_change_together_queue_one_gate(fake_runner):
    target = a_target()
    a_node(target, "decode-0", role="decode")
    audit(target)
    fake_runner.facts = {target.slug: facts(version="0.5.23")}
    audit(target)
    assert StateChange.objects.filter(what="capacity").count() == 2
    assert drift_runs().count() == 1


def test_two_processes_behind_one_address_do_not_audit_for_ever(fake_runner):
    target = a_target()
    audit(target)
    for number in range(4):
        fake_runner.facts = {target.slug: facts(version=f"0.5.{23 + number % 2}")}
        queued = drift_runs().filter(state="queued").first()
        if queued is None:
            audit(target)
        else:
            Run.objects.filter(pk=queued.pk).update(not_before=timezone.now())
            run_task.execute([queued.pk], kind=Kind.PASSIVE)
    waiting = drift_runs().get(state="queued")
    assert waiting.not_before > timezone.now() + timedelta(minutes=4)


def test_a_retired_deployment_is_not_gated_again(fake_runner):
    target = a_target()
    audit(target)
    target.retired_at = timezone.now()
    target.save()
    fake_runner.facts = {target.slug: facts(version="0.5.23")}
    audit(target)
    assert not drift_runs().exists()


def test_what_becomes_inconclusive_is_rerun_once_after_a_quarter_of_an_hour(fake_runner):
    target = a_target()
    fake_runner.says = {"pool": Verdict.INCONCLUSIVE}
    first = audit(target)
    again = Run.objects.get(trigger="retry")
    assert (again.retry_of, again.checks, again.slot) == (first, ["pool"], None)
    assert timedelta(minutes=14) < again.not_before - timezone.now() <= timedelta(minutes=15)
    Run.objects.filter(pk=again.pk).update(not_before=timezone.now() - timedelta(seconds=1))
    run_task.execute([again.pk], kind=Kind.PASSIVE)
    audit(target)
    assert Run.objects.filter(trigger="retry").count() == 1
    fake_runner.says = {}
    audit(target)
    fake_runner.says = {"pool": Verdict.INCONCLUSIVE}
    audit(target)
    assert Run.objects.filter(trigger="retry").count() == 2


def test_a_plan_that_comes_sooner_is_the_rerun(fake_runner):
    target = a_target()
    fake_runner.says = {"pool": Verdict.INCONCLUSIVE}
    audit(target, plan=a_plan(target, interval=60), trigger="schedule", slot=timezone.now())
    audit(a_target(), plan=a_plan(target, interval=3600), trigger="schedule", slot=timezone.now())
    assert Run.objects.filter(trigger="retry").count() == 1


def test_an_error_is_not_rerun(fake_runner):
    fake_runner.says = {"pool": Verdict.ERROR}
    audit(a_target())
    assert not Run.objects.filter(trigger="retry").exists()


GATE = ("pool", "version", "rejection", "canary")


def test_history_before_anything_ran():
    history = history_for(a_target())
    assert (history.fingerprint_changed_at, history.gate_completed_at, history.gate_expired) == (
        None,
        None,
        True,
    )
    assert history.previous == {}


def test_the_gate_has_completed_when_all_four_have_since_the_change(fake_runner):
    target = a_target()
    audit(target, checks=GATE)
    history = history_for(target)
    assert history.gate_completed_at is not None
    assert not history.gate_expired
    fake_runner.facts = {target.slug: facts(version="0.5.23")}
    audit(target, checks=["pool"])
    changed = history_for(target)
    assert changed.fingerprint_changed_at is not None
    assert changed.gate_completed_at is None
    assert changed.gate_expired
    audit(target, checks=GATE)
    after = history_for(target)
    assert after.gate_completed_at > after.fingerprint_changed_at


def test_a_failing_gate_has_completed_but_one_in_error_has_not(fake_runner):
    target = a_target()
    fake_runner.says = {"pool": Verdict.FAIL}
    audit(target, checks=GATE)
    assert history_for(target).gate_completed_at is not None
    other = a_target()
    fake_runner.says = {"canary": Verdict.ERROR}
    audit(other, checks=GATE)
    assert history_for(other).gate_completed_at is None


def test_drift_is_asked_again_once_the_gate_is_complete(
    fake_runner, enqueued, django_capture_on_commit_callbacks
):
    target = a_target()
    fake_runner.says = {"drift": Verdict.INCONCLUSIVE}
    audit(target, checks=["pool", "version", "drift"])
    assert not drift_runs().exists()  # half a gate
    with django_capture_on_commit_callbacks(execute=True):
        audit(target, checks=["rejection", "canary"], kind="active")
    again = drift_runs().get()
    assert (again.kind, again.checks) == ("passive", ["drift"])
    assert ("passive", [again.pk]) in enqueued
    run_task.execute([again.pk], kind=Kind.PASSIVE)
    assert drift_runs().count() == 1  # still inconclusive, and not asked for ever


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.ERROR])
def test_drift_that_does_not_wait_for_the_gate_is_left_alone(fake_runner, verdict):
    target = a_target()
    fake_runner.says = {"drift": verdict}
    audit(target, checks=["drift"])
    audit(target, checks=GATE)
    assert not drift_runs().exists()


def test_a_waiting_drift_does_not_keep_the_gate_from_being_queued(fake_runner):
    target = a_target()
    fake_runner.says = {"drift": Verdict.INCONCLUSIVE}
    audit(target, checks=["drift"])
    audit(target, checks=GATE)
    assert drift_runs().get().checks == ["drift"]
    fake_runner.facts = {target.slug: facts(version="0.5.23")}
    audit(target, checks=["pool"])
    assert ["pool", "version", "drift"] in [run.checks for run in drift_runs()]


def test_history_knows_the_last_significant_fingerprint_of_each_node(fake_runner):
    target = a_target()
    audit(target)
    node = Node.objects.get(deployment=target)
    assert history_for(target).previous[node.name].exact["version"] == "0.5.22"


def test_the_runner_is_told_history(fake_runner):
    target = a_target()
    audit(target)
    audit(target)
    assert fake_runner.histories[0].previous == {}
    assert list(fake_runner.histories[1].previous) == ["prefill-0"]


@pytest.mark.parametrize(
    ("verdict", "measures", "seen"),
    [
        (Verdict.PASS, {"edge_limit": 600_000, "edge_limit_refused": True}, True),
        (Verdict.PASS, {"edge_limit": 600_000, "edge_limit_refused": False}, False),
        (Verdict.PASS, {"edge_limit": 600_000, "edge_limit_refused": None}, False),
        (Verdict.PASS, {"edge_limit": 500_000, "edge_limit_refused": True}, False),  # another limit, earlier
        (Verdict.FAIL, {"edge_limit": 600_000, "edge_limit_refused": True}, False),
        (Verdict.PASS, {}, False),
    ],
)
def test_the_edge_limit_was_seen_refusing(fake_runner, verdict, measures, seen):
    target = a_target(edge_limit=600_000)
    fake_runner.says = {"rejection": result("rejection", verdict, measures=measures)}
    audit(target, checks=["rejection"])
    assert history_for(target).edge_limit_seen_refusing is seen
    CheckState.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert history_for(target).edge_limit_seen_refusing is False
