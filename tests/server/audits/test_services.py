"""What people ask for, and who may."""

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from kvaudit.server.audits import services
from kvaudit.server.audits.execution import claims as claiming
from kvaudit.server.audits.models import Kind, Plan, Run
from kvaudit.server.audits.services import AuditProblem, audit_now, request_cancel
from kvaudit.server.ledger.models import Entry
from tests.factories import a_user
from tests.server.audits.builders import a_run, a_target

pytestmark = pytest.mark.django_db


@pytest.fixture
def people():
    target = a_target()
    return {
        "target": target,
        "operator": a_user(team=target.team, role="operator"),
        "viewer": a_user(team=target.team, role="viewer"),
        "stranger": a_user(team=a_target().team, role="operator"),
    }


def test_audit_now_queues_a_run_and_rings_at_once(people, enqueued, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        run = audit_now(deployment=people["target"], actor=people["operator"])
    assert (run.trigger, run.slot, run.state, run.actor) == ("manual", None, "queued", people["operator"])
    assert run.checks[:2] == ["pool", "version"]
    assert enqueued == [("passive", [run.pk])]
    assert Entry.objects.filter(kind="run.requested", subject=f"run:{run.pk}").exists()


def test_asking_twice_is_one_run(people):
    first = audit_now(deployment=people["target"], actor=people["operator"])
    assert audit_now(deployment=people["target"], actor=people["operator"]) == first
    assert audit_now(deployment=people["target"], actor=people["operator"], checks=["pool"]) != first


@pytest.mark.parametrize("who", ["viewer", "stranger"])
def test_only_operators_of_the_team_may(people, who):
    run = a_run(people["target"])
    with pytest.raises(PermissionDenied):
        audit_now(deployment=people["target"], actor=people[who])
    with pytest.raises(PermissionDenied):
        request_cancel(run=run, actor=people[who])
    run.refresh_from_db()
    assert run.state == "queued"


def test_what_cannot_be_audited_is_a_sentence(people):
    with pytest.raises(AuditProblem, match="no check called"):
        audit_now(deployment=people["target"], actor="system:test", checks=["nonsense"])
    people["target"].retired_at = timezone.now()
    people["target"].save()
    with pytest.raises(AuditProblem, match="retired"):
        audit_now(deployment=people["target"], actor="system:test")


def test_a_queued_run_is_cancelled_at_once_and_is_never_a_pass(people):
    run = a_run(people["target"])
    assert request_cancel(run=run, actor=people["operator"])
    run.refresh_from_db()
    assert (run.state, run.verdict, run.cancel_requested_by) == (
        "cancelled",
        "inconclusive",
        people["operator"],
    )
    assert claiming.claim([run.pk], kind=Kind.PASSIVE) == []
    assert not request_cancel(run=run, actor=people["operator"])
    kinds = set(Entry.objects.filter(subject=f"run:{run.pk}").values_list("kind", flat=True))
    assert kinds == {"run.cancelled", "run.cancel_requested"}


def test_a_running_run_is_asked_to_stop(people):
    run = a_run(people["target"])
    claims = claiming.claim([run.pk], kind=Kind.PASSIVE)
    assert request_cancel(run=run, actor=people["operator"])
    run.refresh_from_db()
    assert run.state == "running"
    assert claiming.heartbeat(claims, {}) == {run.pk: True}


def test_rows_are_seen_by_whoever_sees_the_deployment(people):
    run = a_run(people["target"])
    services.create_plan(
        spec=services.PlanSpec("mine", ["pool"], [people["target"]], interval=60), actor=people["operator"]
    )
    for who, seen in (("viewer", True), ("operator", True), ("stranger", False)):
        assert Run.objects.visible_to(people[who]).filter(pk=run.pk).exists() is seen
        assert Plan.objects.visible_to(people[who]).exists() is seen


def test_a_plan_by_team_is_seen_by_that_team(people):
    services.create_plan(
        spec=services.PlanSpec("team", ["pool"], team=people["target"].team, interval=60),
        actor=people["operator"],
    )
    assert Plan.objects.visible_to(people["viewer"]).exists()
    assert not Plan.objects.visible_to(people["stranger"]).exists()
    assert list(Plan.objects.for_deployment(people["target"])) == list(Plan.objects.all())
