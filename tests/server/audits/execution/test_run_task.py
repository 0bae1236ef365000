"""One worker: claimed runs are probed together, written in batches, cancelled within a heartbeat."""

import uuid

import pytest
from billiard.exceptions import SoftTimeLimitExceeded
from django.db import OperationalError
from django.utils import timezone

from kvaudit.auditor.runner import CheckFinished
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.execution import claims as claiming
from kvaudit.server.audits.execution import recording, run_task
from kvaudit.server.audits.execution import worker as desk
from kvaudit.server.audits.execution.worker import RunCoordinator
from kvaudit.server.audits.models import CheckState, Kind, Result, Run
from kvaudit.server.fleet.models import Node
from kvaudit.server.ledger.models import Entry
from tests.server.audits.builders import a_run, a_target, result
from tests.waiting import until_async

pytestmark = pytest.mark.django_db


def execute(*runs):
    done = run_task.execute([run.pk for run in runs], kind=Kind.PASSIVE)
    for run in runs:
        run.refresh_from_db()
    return done


async def until(cancelled):
    await until_async(cancelled, "the run is cancelled")


@pytest.fixture
def on_beat(monkeypatch, settings):
    """Do something in the database just before the first heartbeat."""
    settings.AUDIT_HEARTBEAT_SECONDS = 0.05
    original = claiming.heartbeat

    def install(act):
        todo = [act]

        def heartbeat(claims, progress, spent=None):
            if todo:
                todo.pop()()
            return original(claims, progress, spent)

        monkeypatch.setattr(claiming, "heartbeat", heartbeat)

    return install


def test_a_run_ends_with_results_state_and_a_ledger_entry(fake_runner):
    run = a_run(a_target())
    assert execute(run) == 1
    assert (run.state, run.verdict, run.attempt, run.lease_token) == ("finished", "pass", 1, None)
    assert run.summary == "pool, version: pass."
    assert run.progress == {"nodes": 1, "read": 1, "checks": {"pool": "pass", "version": "pass"}}
    assert run.fingerprint
    assert [row.check_id for row in run.results.order_by("id")] == ["pool", "version"]
    assert set(CheckState.objects.current().values_list("check_id", "verdict")) == {
        ("pool", "pass"),
        ("version", "pass"),
    }
    assert Entry.objects.filter(subject=f"run:{run.pk}", kind="run.finished").count() == 1


def test_many_runs_in_one_task(fake_runner):
    runs = [a_run(a_target()) for _ in range(60)]
    assert execute(*runs) == 60
    assert {(run.state, run.verdict) for run in runs} == {("finished", "pass")}
    assert Result.objects.count() == 120


def test_a_second_message_for_the_same_run_does_nothing(fake_runner):
    run = a_run(a_target())
    execute(run)
    assert execute(run) == 0
    assert (run.attempt, Result.objects.count()) == (1, 2)


@pytest.mark.parametrize(
    ("says", "verdict"),
    [
        ({"pool": Verdict.FAIL}, "fail"),
        ({"version": Verdict.ERROR}, "error"),
        ({"pool": Verdict.INCONCLUSIVE}, "inconclusive"),
        ({"pool": Verdict.FAIL, "version": Verdict.ERROR}, "fail"),
    ],
)
def test_the_worst_check_decides_and_is_the_sentence(fake_runner, says, verdict):
    fake_runner.says = says
    run = a_run(a_target())
    execute(run)
    assert run.verdict == verdict
    assert run.summary.endswith(f"says {verdict}")


def test_a_runner_that_breaks_is_an_error_for_its_run_alone(fake_runner):
    broken, sound = a_target("broken"), a_target("sound")

    def explode(target, cancelled):
        if target.slug == "broken":
            raise RuntimeError("boom")

    fake_runner.before = explode
    first, second = a_run(broken), a_run(sound)
    execute(first, second)
    assert (first.verdict, second.verdict) == ("error", "pass")
    assert "RuntimeError" in first.summary


def test_a_check_without_a_result_is_an_error_never_a_pass(monkeypatch):
    async def forgetful(target, checks, **_):
        yield CheckFinished(result(checks[0]))

    monkeypatch.setattr("kvaudit.auditor.runner.run", forgetful)
    run = a_run(a_target())
    execute(run)
    assert run.verdict == "error"
    assert CheckState.objects.get(check_id="version").verdict == "error"


def test_a_key_that_cannot_be_opened_is_an_error(fake_runner):
    target = a_target()
    Node.objects.filter(deployment=target).update(headers_sealed="not sealed by us")
    run = a_run(target)
    execute(run)
    assert run.verdict == "error"
    assert fake_runner.ran == []


@pytest.mark.parametrize("said", [Verdict.ERROR, Verdict.INCONCLUSIVE])
def test_cancelled_in_the_middle_keeps_what_was_known(fake_runner, on_beat, said):
    fake_runner.when_cancelled = said
    target = a_target()
    execute(a_run(target))
    before = CheckState.objects.get(check_id="pool").last_confirmed
    run = a_run(target)
    on_beat(lambda: Run.objects.filter(pk=run.pk).update(cancel_requested_at=timezone.now()))
    fake_runner.before = lambda target, cancelled: until(cancelled)
    execute(run)
    assert (run.state, run.verdict) == ("cancelled", said)
    assert set(run.progress["checks"].values()) == {said}
    assert CheckState.objects.get(check_id="pool").last_confirmed == before
    assert Entry.objects.filter(subject=f"run:{run.pk}", kind="run.cancelled").count() == 1


def test_a_worker_that_lost_its_lease_stops_and_writes_nothing(fake_runner, on_beat):
    run = a_run(a_target())
    other = uuid.uuid4()
    on_beat(lambda: Run.objects.filter(pk=run.pk).update(lease_token=other, attempt=2))
    fake_runner.before = lambda target, cancelled: until(cancelled)
    assert execute(run) == 0
    assert (run.state, run.verdict, run.lease_token) == ("running", None, other)
    assert not Result.objects.exists()


def test_a_lease_lost_just_before_writing_is_fenced(fake_runner, monkeypatch):
    run = a_run(a_target())
    finish = recording.finish

    def late(batch):
        Run.objects.filter(pk=run.pk).update(lease_token=uuid.uuid4())
        return finish(batch)

    monkeypatch.setattr(recording, "finish", late)
    assert execute(run) == 0
    assert run.state == "running"
    assert not Result.objects.exists()
    assert not CheckState.objects.exists()


def test_a_database_that_is_away_for_a_moment_costs_nothing(fake_runner, monkeypatch):
    run = a_run(a_target())
    finish, faults = recording.finish, [OperationalError("gone"), OperationalError("still gone")]

    def flaky(batch):
        if faults:
            raise faults.pop()
        return finish(batch)

    monkeypatch.setattr(recording, "finish", flaky)
    monkeypatch.setattr(desk, "close_old_connections", lambda: None)
    monkeypatch.setattr(desk.time, "sleep", lambda seconds: None)
    assert execute(run) == 1
    assert run.verdict == "pass"


def test_results_that_cannot_be_written_cost_only_their_own_run(fake_runner, monkeypatch):
    first, second = a_run(a_target()), a_run(a_target())
    finish = recording.finish

    def refuse(batch):
        if any(each.claim.run_id == first.pk and each.nodes for each in batch):
            raise ValueError("a value that PostgreSQL refuses")
        return finish(batch)

    monkeypatch.setattr(recording, "finish", refuse)
    execute(first, second)
    assert (first.verdict, second.verdict) == ("error", "pass")
    assert "could not be stored" in first.summary


def test_the_soft_limit_ends_runs_as_error(fake_runner, monkeypatch):
    run = a_run(a_target())
    fake_runner.before = lambda target, cancelled: until(cancelled)
    beats = iter([SoftTimeLimitExceeded()])
    original = RunCoordinator._take_event

    def take(desk):
        if (limit := next(beats, None)) is not None:
            raise limit
        original(desk)

    monkeypatch.setattr(RunCoordinator, "_take_event", take)
    execute(run)
    assert (run.state, run.verdict) == ("finished", "error")


def test_budget_of_the_plan_within_what_a_task_may_take():
    from tests.server.audits.builders import a_plan

    target = a_target()
    plan = a_plan(target, budget_seconds=5, budget_tokens=1000)
    budget = run_task.budget_of(a_run(target, plan=plan))
    assert (budget.seconds, budget.prompt_tokens) == (5, 1000)
    long = a_plan(target, budget_seconds=100_000)
    assert run_task.budget_of(a_run(target, plan=long)).seconds == run_task.PASSIVE_SECONDS


def test_state_of_every_kind_of_run_names_its_configuration(fake_runner):
    """An active run's result is kept before the run ends, and speaks of what was read all the same."""
    target = a_target()
    run_task.execute([a_run(target).pk], kind=Kind.PASSIVE)
    active = a_run(target, kind=Kind.ACTIVE, checks=["rejection", "canary"])
    run_task.execute([active.pk], kind=Kind.ACTIVE)
    active.refresh_from_db()
    digests = dict(CheckState.objects.current().values_list("check_id", "fingerprint"))
    assert {"pool", "rejection", "canary"} <= set(digests)
    assert set(digests.values()) == {active.fingerprint}
    assert len(active.fingerprint) == 16
