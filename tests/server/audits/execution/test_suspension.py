"""A prompt that stopped a server from answering is not sent again until a person says so."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.accounts.roles import Role
from kvaudit.server.audits.execution import claims, recovery, run_task, suspension
from kvaudit.server.audits.execution.replay import ReplayProblem, replay
from kvaudit.server.audits.models import Kind, Run, RunState, StateChange, Trigger
from kvaudit.server.audits.services import AuditProblem, audit_now
from kvaudit.server.fleet.models import Pause
from kvaudit.server.fleet.services import pause_probes
from kvaudit.server.ledger.models import Entry
from kvaudit.server.web.kit.parts.reproduce import reproduction_of
from tests.factories import a_user
from tests.server.audits.builders import a_run, a_target, facts, result

pytestmark = pytest.mark.django_db

SAID = "After this prompt of 2,047 tokens nothing answered any more."
WEDGED = result(
    "rejection", Verdict.FAIL, SAID, severity="high", measures={"wedged": "yes", "wedged_tokens": 2047}
)
SUSPECTED = result(
    "rejection", Verdict.INCONCLUSIVE, SAID, measures={"wedged": "suspected", "wedged_tokens": 2047}
)
AFTER = result("canary", Verdict.INCONCLUSIVE, f"canary was not asked: {SAID}")
ACTIVE = ("rejection", "canary")


def wedge(actor, said=WEDGED, **fields):
    """A deployment whose nightly run met such a prompt."""
    run = a_run(a_target(), checks=ACTIVE, kind=Kind.ACTIVE, **fields)
    actor.says = {"rejection": said, "canary": AFTER}
    assert run_task.execute([run.pk], kind=Kind.ACTIVE) == 1
    return run.deployment


@pytest.mark.parametrize("said", [WEDGED, SUSPECTED], ids=["proven", "suspected"])
def test_active_checks_are_suspended_as_state_timeline_and_ledger(fake_runner, said):
    deployment = wedge(fake_runner, said)
    pause = Pause.objects.current().get(deployment=deployment)
    assert pause.suspended
    assert "2,047 tokens" in pause.reason
    (change,) = StateChange.objects.filter(deployment=deployment, what=StateChange.What.SUSPENDED)
    assert "until an operator resumes" in change.summary
    assert change.run_id
    (entry,) = Entry.objects.filter(kind="probes.suspended")
    assert entry.subject == f"deployment:{deployment.slug}"


@pytest.mark.parametrize("said", [WEDGED, SUSPECTED], ids=["proven", "suspected"])
def test_nothing_repeats_it_by_itself(fake_runner, said):
    """No re-run of what became inconclusive, no retry of a lapsed lease, no plan."""
    deployment = wedge(fake_runner, said, trigger=Trigger.SCHEDULE)
    assert not Run.objects.filter(trigger=Trigger.RETRY).exists()
    due = a_run(deployment, checks=ACTIVE, kind=Kind.ACTIVE, trigger=Trigger.SCHEDULE)
    asked = a_run(deployment, checks=ACTIVE, kind=Kind.ACTIVE, trigger=Trigger.MANUAL)
    assert run_task.execute([due.pk, asked.pk], kind=Kind.ACTIVE) == 0
    with pytest.raises(AuditProblem, match=r"suspended for .*operator resumes"):
        audit_now(deployment=deployment, actor="system:tests", checks=["rejection"])


def test_nothing_offers_it_for_sending_again(fake_runner):
    deployment = wedge(fake_runner)
    run = Run.objects.get(deployment=deployment)
    assert run.wedged
    assert reproduction_of(run).line == ""
    with pytest.raises(ReplayProblem, match="operator resumes"):
        replay(original=run, checks=["rejection"], lengths=[2_047], actor="system:tests")


def test_checks_that_only_read_go_on(fake_runner):
    deployment = wedge(fake_runner)
    reading = a_run(deployment)
    assert run_task.execute([reading.pk], kind=Kind.PASSIVE) == 1


def test_a_person_resumes_with_a_reason(fake_runner):
    deployment = wedge(fake_runner)
    operator = a_user(team=deployment.team, role=Role.OPERATOR)
    for nothing in ("", "   "):
        with pytest.raises(ValueError, match="give the reason"):
            suspension.resume(deployment=deployment, actor=operator, reason=nothing)
    suspension.resume(deployment=deployment, actor=operator, reason="pool enlarged to 4,096")
    assert not Pause.objects.current().filter(deployment=deployment).exists()
    (change,) = StateChange.objects.filter(what=StateChange.What.RESUMED)
    assert operator.get_username() in change.summary
    assert "pool enlarged" in change.summary
    assert "pool enlarged" in Entry.objects.get(kind="probes.resumed").subject
    assert (
        audit_now(deployment=deployment, actor="system:tests", checks=["rejection"]).state == RunState.QUEUED
    )


def test_who_may_not_pause_may_not_resume(fake_runner):
    deployment = wedge(fake_runner)
    for somebody in (a_user(team=deployment.team), a_user()):
        with pytest.raises(PermissionDenied):
            suspension.resume(deployment=deployment, actor=somebody, reason="because")
    assert suspension.suspended_since(deployment) is not None


def test_a_persons_pause_becomes_part_of_it(fake_runner):
    run = a_run(a_target(), checks=ACTIVE, kind=Kind.ACTIVE)
    (claim,) = claims.claim([run.pk], kind=Kind.ACTIVE)
    assert claim
    pause_probes(actor="system:tests", deployment=run.deployment, reason="a fair")
    suspension.suspend(run, SAID)
    pause = Pause.objects.current().get(deployment=run.deployment)
    assert pause.suspended
    assert "a fair" in pause.reason
    assert suspension.suspend(run, SAID) == []


def test_a_worker_lost_in_the_silence_is_not_retried():
    run = a_run(a_target(), checks=ACTIVE, kind=Kind.ACTIVE)
    claims.claim([run.pk], kind=Kind.ACTIVE)
    Run.objects.filter(pk=run.pk).update(
        lease_until=timezone.now() - timedelta(seconds=1), progress={"silent": 2_047}
    )
    recovery.recover()
    run.refresh_from_db()
    assert run.state == RunState.FINISHED
    assert "is not sent again" in run.summary
    assert suspension.suspended_since(run.deployment) is not None


def test_other_deployments_of_the_same_build_are_suspended_as_well(
    fake_runner, django_capture_on_commit_callbacks
):
    """Their next night would send the same prompt. Another build, and a suspicion, suspend nobody else."""
    same, changed, unread = (a_target(slug) for slug in ("same", "changed", "unread"))
    for one in (same, changed):
        run = a_run(one)
        if one is changed:
            fake_runner.facts = {"changed": facts(version="0.5.19")}
        assert run_task.execute([run.pk], kind=Kind.PASSIVE) == 1
    with django_capture_on_commit_callbacks(execute=True):
        wedged = wedge(fake_runner)
    (pause,) = Pause.objects.current().filter(deployment__in=[same, changed, unread])
    assert pause.deployment == same
    assert pause.suspended
    assert "2,047 tokens" in pause.reason
    assert wedged.slug not in pause.reason
    (change,) = StateChange.objects.filter(deployment=same, what=StateChange.What.SUSPENDED)
    assert "until an operator resumes" in change.summary
    due = a_run(same, checks=ACTIVE, kind=Kind.ACTIVE, trigger=Trigger.SCHEDULE)
    assert run_task.execute([due.pk], kind=Kind.ACTIVE) == 0


def test_a_suspicion_suspends_nobody_else(fake_runner, django_capture_on_commit_callbacks):
    same = a_target("same")
    assert run_task.execute([a_run(same).pk], kind=Kind.PASSIVE) == 1
    with django_capture_on_commit_callbacks(execute=True):
        wedge(fake_runner, SUSPECTED)
    assert not Pause.objects.current().filter(deployment=same).exists()
