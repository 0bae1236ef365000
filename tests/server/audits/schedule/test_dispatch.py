"""From due plans to queued runs: every slot exactly one row per deployment."""

from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.server.audits.models import Overdue, Plan, Run, StateChange
from kvaudit.server.audits.schedule import dispatch as dispatching
from kvaudit.server.audits.schedule import times as schedule
from kvaudit.server.audits.schedule.dispatch import dispatch
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.ledger.models import Entry
from tests.server.audits.builders import a_plan, a_target
from tests.server.audits.execution.test_claims import compete


def move_back(plan, **delta):
    """As if the plan had been made, and nothing dispatched, for so long."""
    ago = timezone.now().replace(microsecond=0) - timedelta(**delta)
    Plan.objects.filter(pk=plan.pk).update(anchor=ago, next_due=ago, valid_from=ago)
    Deployment.objects.update(created_at=ago - timedelta(days=1))
    plan.refresh_from_db()
    return ago


def slots(state):
    return list(Run.objects.filter(state=state).order_by("slot").values_list("slot", flat=True))


@pytest.mark.django_db
def test_a_new_plan_is_due_at_once_and_then_every_interval():
    target = a_target()
    plan = a_plan(target, interval=60)
    assert dispatch().runs == 1
    run = Run.objects.get()
    assert (run.deployment, run.plan, run.slot, run.trigger) == (target, plan, plan.anchor, "schedule")
    assert (run.kind, run.checks) == ("passive", ["pool", "version"])
    plan.refresh_from_db()
    assert plan.next_due == plan.anchor + timedelta(seconds=60)
    assert dispatch().runs == 0


@pytest.mark.django_db
def test_one_run_per_selected_deployment():
    team_target = a_target(engine="vllm")
    explicit, other = a_target(engine="sglang"), a_target(engine="sglang")
    retired = a_target(engine="vllm", team=team_target.team, retired_at=timezone.now())
    a_plan(explicit, retired, team=team_target.team, engine="vllm")
    dispatch()
    assert set(Run.objects.values_list("deployment", flat=True)) == {team_target.pk, explicit.pk}
    assert other.pk not in Run.objects.values_list("deployment", flat=True)


@pytest.mark.django_db
def test_after_a_stop_the_newest_slot_runs_and_older_ones_are_missed():
    target = a_target()
    plan = a_plan(target, interval=60)
    ago = move_back(plan, minutes=59, seconds=30)
    done = dispatch()
    assert (done.runs, done.missed) == (1, 59)
    assert slots("queued") == [ago + timedelta(minutes=59)]
    assert slots("missed") == [ago + timedelta(minutes=minute) for minute in range(59)]
    assert set(Run.objects.filter(state="missed").values_list("verdict", flat=True)) == {None}
    plan.refresh_from_db()
    assert (plan.missed_from, plan.missed_before) == (None, None)
    assert Overdue.objects.open().count() == 1
    assert Entry.objects.filter(kind="runs.missed").count() == 1


@pytest.mark.django_db
def test_a_years_stop_is_written_in_batches_newest_first(monkeypatch):
    monkeypatch.setattr(dispatching, "ROWS_PER_TICK", 600)
    targets = [a_target() for _ in range(2)]
    plan = a_plan(*targets, interval=3600)
    ago = move_back(plan, days=365, minutes=1)
    first = dispatch()
    assert first.runs == 2
    assert 600 <= first.missed <= 604
    newest = ago + timedelta(days=365)
    assert slots("queued") == [newest] * 2
    while dispatch().missed:
        pass
    missed = Run.objects.filter(state="missed", deployment=targets[0])
    assert sum(missed.values_list("slots", flat=True)) == 365 * 24
    assert missed.count() == dispatching.SINGLE_ROWS + 1
    summary = missed.get(slots__gt=1)
    assert summary.slots == 365 * 24 - dispatching.SINGLE_ROWS
    assert missed.order_by("slot").first() == summary
    assert Overdue.objects.open().count() == 2


@pytest.mark.django_db
def test_a_second_gap_before_the_first_is_written_loses_no_slot(monkeypatch):
    target = a_target()
    plan = a_plan(target, interval=60)
    ago = move_back(plan, minutes=30)
    monkeypatch.setattr(dispatching, "ROWS_PER_TICK", 0)
    dispatch()
    Plan.objects.filter(pk=plan.pk).update(next_due=ago + timedelta(minutes=31))
    monkeypatch.setattr(dispatching, "database_now", lambda: ago + timedelta(minutes=45, seconds=10))
    Plan.objects.filter(pk=plan.pk).update(next_due=ago + timedelta(minutes=31))
    monkeypatch.setattr(dispatching, "Now", lambda: ago + timedelta(minutes=45, seconds=10))
    dispatch()
    monkeypatch.setattr(dispatching, "ROWS_PER_TICK", 2_000)
    dispatch()
    assert slots("queued") == [ago + timedelta(minutes=30), ago + timedelta(minutes=45)]
    assert len(slots("missed")) == 44


@pytest.mark.django_db
def test_a_deployment_misses_nothing_before_it_exists():
    old, young = a_target(), a_target()
    plan = a_plan(old, young, interval=60)
    ago = move_back(plan, minutes=10)
    Deployment.objects.filter(pk=young.pk).update(created_at=ago + timedelta(minutes=7, seconds=1))
    dispatch()
    assert Run.objects.filter(deployment=young, state="missed").count() == 2
    assert Run.objects.filter(deployment=old, state="missed").count() == 10


@pytest.mark.django_db
def test_switched_off_and_replaced_plans_are_not_dispatched():
    a_plan(a_target(), enabled=False)
    replaced = a_plan(a_target())
    Plan.objects.filter(pk=replaced.pk).update(valid_to=timezone.now())
    assert dispatch().plans == 0


@pytest.mark.django_db
def test_a_plan_that_cannot_be_computed_stops_alone():
    bad, good = a_plan(a_target()), a_plan(a_target())
    Plan.objects.filter(pk=bad.pk).update(interval=None, cron="0 2 * * *", zone="Mars/Olympus")
    assert dispatch().runs == 1
    assert Run.objects.get().plan == good
    bad.refresh_from_db()
    assert bad.next_due is None


@pytest.mark.django_db
def test_jitter_delays_but_is_no_part_of_the_slot():
    targets = [a_target() for _ in range(20)]
    plan = a_plan(*targets, jitter=600)
    dispatch()
    delays = [(run.not_before - run.slot).total_seconds() for run in Run.objects.all()]
    assert set(Run.objects.values_list("slot", flat=True)) == {plan.anchor}
    assert all(0 <= delay < 600 for delay in delays)
    assert max(delays) - min(delays) > 100
    assert dispatching.jitter(plan, targets[0], plan.anchor) == dispatching.jitter(
        plan, targets[0], plan.anchor
    )


@pytest.mark.django_db
def test_a_queued_run_expires_with_its_next_slot_but_not_within_moments(settings):
    settings.AUDIT_SHORTEST_EXPIRY_SECONDS = 120
    settings.AUDIT_BEAT_SECONDS = 1
    hourly, quick = a_plan(a_target(), interval=3600), a_plan(a_target(), interval=2)
    dispatch()
    for plan, seconds in ((hourly, 3600), (quick, 120)):
        run = Run.objects.get(plan=plan)
        assert (run.expires_at - run.slot).total_seconds() == seconds


NEVER = [{"days": [], "from": "00:00", "to": "00:01", "zone": "UTC"}]


@pytest.mark.django_db
def test_a_slot_whose_window_opens_only_after_the_next_slot_is_none():
    now = timezone.now()
    soon = now + timedelta(hours=3)
    window = [{"from": f"{soon:%H:%M}", "to": f"{soon + timedelta(hours=1):%H:%M}", "zone": "UTC"}]
    hourly, daily = a_plan(a_target(), windows=window), a_plan(a_target(), interval=86400, windows=window)
    dispatch()
    assert not Run.objects.filter(plan=hourly).exists()
    run = Run.objects.get(plan=daily)
    assert run.not_before.replace(second=0, microsecond=0) == soon.replace(second=0, microsecond=0)
    assert run.slot == daily.anchor


@pytest.mark.django_db
def test_bells_ring_for_what_is_due_in_tasks_of_fifty(enqueued, django_capture_on_commit_callbacks):
    a_plan(*[a_target() for _ in range(60)])
    with django_capture_on_commit_callbacks(execute=True):
        dispatch()
    assert [(kind, len(ids)) for kind, ids in enqueued] == [("passive", 60)]
    with django_capture_on_commit_callbacks(execute=True):
        assert dispatch().sent == 0  # they have been sent already
    assert len(enqueued) == 1


@pytest.mark.django_db
def test_a_lost_bell_is_rung_again_ever_more_rarely(enqueued, django_capture_on_commit_callbacks, settings):
    settings.AUDIT_RING_AGAIN_SECONDS = 60
    a_plan(a_target())
    dispatch()
    now = timezone.now()
    Run.objects.update(rung_at=now - timedelta(seconds=61))
    assert dispatch().sent == 1
    Run.objects.update(rung_at=now - timedelta(seconds=61))
    assert dispatch().sent == 0
    Run.objects.update(rung_at=now - timedelta(seconds=121))
    assert dispatch().sent == 1


@pytest.mark.django_db(transaction=True)
def test_ten_dispatchers_at_once_make_each_run_once():
    targets = [a_target() for _ in range(5)]
    plans = [a_plan(*targets, interval=60) for _ in range(6)]
    for plan in plans:
        move_back(plan, minutes=5, seconds=30)
    done = compete(10, dispatch)
    assert sum(each.plans for each in done) == 6
    assert Run.objects.filter(state="queued").count() == 30
    assert Run.objects.filter(state="missed").count() == 6 * 5 * 5
    assert not Plan.objects.filter(missed_from__isnull=False).exists()


@pytest.mark.django_db
def test_overdue_is_told_once_per_plan_and_deployment():
    target = a_target()
    plan = a_plan(target, interval=60)
    move_back(plan, minutes=5)
    dispatch()
    Plan.objects.filter(pk=plan.pk).update(next_due=timezone.now() - timedelta(minutes=3))
    dispatch()
    assert StateChange.objects.filter(what="overdue").count() == 1


def test_the_longest_walk_is_more_than_a_year_of_minutes():
    assert schedule.LARGEST_WALK > 366 * 24 * 60
