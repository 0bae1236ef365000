"""Plans by version, and the defaults of a deployment."""

from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from kvaudit.auditor.fleetfile import FleetPlan
from kvaudit.server.audits.models import Plan
from kvaudit.server.audits.schedule import defaults
from kvaudit.server.audits.schedule.defaults import add_file_plans, ensure_default_plans, missing_for
from kvaudit.server.audits.schedule.plans import (
    PlanProblem,
    PlanSpec,
    change_plan,
    create_plan,
    retire_plan,
    spec_of,
)
from tests.factories import a_user
from tests.server.audits.builders import a_plan, a_target

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"name": " "}, "needs a name"),
        ({"checks": []}, "at least one check"),
        ({"checks": ["nonsense"]}, "no check called"),
        ({"deployments": []}, "selects deployments"),
        ({"jitter": -1}, "zero or more"),
        ({"interval": None}, "exactly one"),
        ({"cron": "* * * * *"}, "exactly one"),
        ({"windows": [{"from": "x"}]}, "not a window"),
        ({"interval": 5}, "due every 5 s cannot be kept: what is due is looked for every 15 s"),
        ({"interval": 14}, "looked for every 15 s"),
    ],
)
def test_a_wrong_plan_is_a_sentence_and_no_row(spec, words):
    target = a_target()
    wanted = {"name": "p", "checks": ["pool"], "deployments": [target], "interval": 60, **spec}
    with pytest.raises(PlanProblem, match=words):
        create_plan(spec=PlanSpec(**wanted), actor="system:test")
    assert not Plan.objects.exists()


@pytest.mark.parametrize("schedule", [{"interval": 15}, {"cron": "* * * * *"}, {"cron": "0 3 29 2 *"}])
def test_a_plan_no_more_often_than_beat_is_kept(schedule):
    assert a_plan(a_target(), **schedule).next_due


def test_cron_is_held_to_beat_as_well(settings):
    settings.AUDIT_BEAT_SECONDS = 300
    with pytest.raises(PlanProblem, match="due every 60 s cannot be kept"):
        a_plan(a_target(), cron="0-10 * * * *")
    assert a_plan(a_target(), cron="*/5 * * * *").next_due


def test_a_change_is_a_new_version_and_the_beat_goes_on():
    target = a_target()
    plan = a_plan(target, interval=60)
    due = timezone.now() + timedelta(seconds=40)
    Plan.objects.filter(pk=plan.pk).update(next_due=due)
    from dataclasses import replace

    new = change_plan(plan=plan, spec=replace(spec_of(plan), name="renamed"), actor="system:test")
    plan.refresh_from_db()
    assert (new.series, new.name, new.anchor) == (plan.series, "renamed", plan.anchor)
    assert (plan.valid_to, plan.next_due) == (new.valid_from, None)
    assert Plan.objects.get(pk=new.pk).next_due == due
    assert list(Plan.objects.current()) == [new]
    assert list(Plan.objects.at(plan.valid_from)) == [plan]
    assert list(new.deployments.all()) == [target]


def test_another_interval_is_due_at_once():
    from dataclasses import replace

    plan = a_plan(a_target(), interval=3600)
    Plan.objects.filter(pk=plan.pk).update(next_due=timezone.now() + timedelta(hours=1))
    new = change_plan(plan=plan, spec=replace(spec_of(plan), interval=60), actor="system:test")
    assert new.next_due <= timezone.now()


def test_two_people_who_change_the_same_version_do_not_both_win():
    plan = a_plan(a_target())
    change_plan(plan=plan, spec=spec_of(plan), actor="system:test")
    with pytest.raises(PlanProblem, match="changed meanwhile"):
        change_plan(plan=plan, spec=spec_of(plan), actor="system:test")


def test_a_retired_plan_has_no_further_slots():
    plan = a_plan(a_target())
    retire_plan(plan=plan, actor="system:test")
    plan.refresh_from_db()
    assert (plan.next_due, Plan.objects.current().exists()) == (None, False)


def test_a_plan_reaches_no_further_than_its_maker_may():
    mine, other = a_target(), a_target()
    operator = a_user(team=mine.team, role="operator")
    create_plan(spec=PlanSpec("own", ["pool"], [mine], interval=60), actor=operator)
    for spec in (
        PlanSpec("others", ["pool"], [mine, other], interval=60),
        PlanSpec("team", ["pool"], team=other.team, interval=60),
        PlanSpec("everywhere", ["pool"], engine="vllm", interval=60),
    ):
        with pytest.raises(PermissionDenied):
            create_plan(spec=spec, actor=operator)


def test_default_plans_run_what_can_run_and_name_what_is_missing():
    target = a_target("glm")
    made = ensure_default_plans(deployment=target, actor="system:test")
    assert [(plan.name, plan.checks, plan.interval) for plan in made] == [
        ("glm hourly", ["pool", "version", "drift"], 3600),
        ("glm daily", ["exposure"], 86400),
    ]
    missing = {each.check: each.why for each in missing_for(target)}
    assert set(missing) == {"accounting", "rejection", "coherence", "canary"}
    assert "keys of 2 tenants" in missing["canary"]


def test_default_plans_are_made_once_whatever_became_of_them():
    target = a_target()
    hourly, daily = ensure_default_plans(deployment=target, actor="system:test")
    retire_plan(plan=hourly, actor="system:test")
    assert ensure_default_plans(deployment=target, actor="system:test") == []
    assert list(Plan.objects.current()) == [daily]


def test_a_check_that_needs_keys_and_consent_says_so():
    from kvaudit.server.fleet.models import Consent, Tenant

    target = a_target()
    ensure_default_plans(deployment=target, actor="system:test")

    def why():
        return {missing.check: missing.why for missing in missing_for(target)}.get("canary")

    assert "keys of 2 tenants" in why()
    for name in "ab":
        Tenant.objects.create(deployment=target, name=name, credential_sealed="sealed")
    assert "consent" in why()
    Consent.objects.create(deployment=target, given_by="somebody")
    assert why() is None
    daily, nightly = ensure_default_plans(deployment=target, actor="system:test")
    assert (daily.kind, daily.checks, daily.interval) == ("active", ["accounting"], 86400)
    assert (nightly.kind, nightly.cron) == ("active", defaults.NIGHT)
    assert nightly.checks == ["rejection", "coherence", "canary"]


def test_plans_of_a_fleet_file_are_made_once():
    target = a_target("glm")
    plan = FleetPlan("quarter", ("pool",), interval=900, jitter=30)
    (made,) = add_file_plans(deployment=target, plans=[plan], actor="system:test")
    assert (made.name, made.interval, made.jitter) == ("glm quarter", 900, 30)
    assert add_file_plans(deployment=target, plans=[plan], actor="system:test") == []
