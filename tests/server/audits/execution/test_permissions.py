"""What an active run may do: tokens of the day, and the sentences that stop it before its next request."""

from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.auditor.prober.spending import TokenUsage
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.execution import permissions, run_task
from kvaudit.server.audits.models import CheckState, Kind, Run, Trigger
from kvaudit.server.fleet.services import pause_probes
from tests.server.audits.builders import a_run, a_target, result
from tests.waiting import until_async

pytestmark = pytest.mark.django_db


def active(target, **fields):
    return a_run(target, kind=Kind.ACTIVE, checks=fields.pop("checks", ["canary"]), **fields)


@pytest.mark.parametrize(
    ("context", "setting", "ceiling"),
    [(None, None, 80_000_000), (1_048_576, None, 335_544_320), (1_048_576, 1_000, 1_000), (None, 0, 0)],
)
def test_the_ceiling_of_a_day(settings, context, setting, ceiling):
    settings.AUDIT_DAILY_PROMPT_TOKENS = setting
    assert permissions.daily_ceiling(a_target(context=context)) == ceiling


def test_what_is_left_counts_every_attempt_of_24_hours(settings):
    settings.AUDIT_DAILY_PROMPT_TOKENS = 1_000
    target, now = a_target(), timezone.now()
    active(target, tokens_spent=300, started_at=now - timedelta(hours=23))
    active(target, tokens_spent=200, started_at=now, state="running", attempt=2)
    active(target, tokens_spent=900, started_at=now - timedelta(hours=25))
    active(a_target(), tokens_spent=900, started_at=now)
    assert permissions.daily_left(target) == 500
    active(target, tokens_spent=5_000, started_at=now)
    assert permissions.daily_left(target) == 0


@pytest.mark.parametrize("where", ["production", "newcomer", "drained"])
def test_a_run_says_what_its_replicas_serve_meanwhile(where):
    run = active(a_target(), where=where)
    found = permissions.permission_of(
        run, stopped=lambda: "", planted=lambda marker: None, spent=TokenUsage()
    )
    assert found.where == where


def test_a_closed_window_stops_a_scheduled_run_and_not_one_that_a_person_asked_for():
    now = timezone.now()
    closed = [
        {"days": [], "from": f"{now - timedelta(hours=3):%H:%M}", "to": f"{now - timedelta(hours=2):%H:%M}"}
    ]
    target = a_target(windows=[{**closed[0], "zone": "UTC"}])
    assert permissions.why_stop(active(target, trigger=Trigger.MANUAL)) == ""
    assert "window" in permissions.why_stop(active(target, trigger=Trigger.SCHEDULE))
    assert permissions.why_stop(active(a_target(), trigger=Trigger.SCHEDULE)) == ""


@pytest.mark.parametrize("whole_fleet", [False, True])
def test_a_pause_reaches_a_run_under_way_with_the_next_heartbeat(
    fake_runner, monkeypatch, settings, whole_fleet
):
    """What was asked counts; what was not asked moves no state."""
    settings.AUDIT_HEARTBEAT_SECONDS = 0.05
    target = a_target()
    run_task.execute([active(target, checks=["rejection", "canary"]).pk], kind=Kind.ACTIVE)
    before = dict(CheckState.objects.values_list("check_id", "last_confirmed"))
    stopped = []
    original = run_task.permission_of

    def watch(run, **hooks):
        stopped.append(hooks["stopped"])
        pause_probes(actor="command:test", deployment=None if whole_fleet else target)
        return original(run, **hooks)

    monkeypatch.setattr(run_task, "permission_of", watch)

    async def until_stopped(target, cancelled):
        await until_async(stopped[0], "the run is told to stop")

    fake_runner.before = until_stopped
    fake_runner.says = {"canary": result("canary", Verdict.INCONCLUSIVE, "canary was not asked: paused.")}
    run = active(target, checks=["rejection", "canary"])
    # Queued before the pause, so that it is claimed: the pause comes while it is being loaded.
    run_task.execute([run.pk], kind=Kind.ACTIVE)
    run.refresh_from_db()
    assert "paused by command:test" in stopped[0]()
    assert (run.state, run.verdict) == ("cancelled", "inconclusive")
    states = {row.check_id: row for row in CheckState.objects.current()}
    assert states["canary"].verdict == "pass"
    assert states["canary"].last_confirmed == before["canary"]
    assert states["rejection"].last_confirmed > before["rejection"]


def test_tokens_are_written_while_they_are_spent(fake_runner, monkeypatch, settings):
    settings.AUDIT_HEARTBEAT_SECONDS = 0.02
    run = active(a_target(), tokens_spent=70)
    hooks, seen = {}, []
    original = run_task.permission_of
    monkeypatch.setattr(
        run_task, "permission_of", lambda run, **them: hooks.update(them) or original(run, **them)
    )
    beat = run_task.claiming.heartbeat

    def watch(*arguments):
        found = beat(*arguments)
        seen.append(Run.objects.get(pk=run.pk).tokens_spent)
        return found

    monkeypatch.setattr(run_task.claiming, "heartbeat", watch)

    async def before(target, cancelled):
        hooks["spent"].prompt_tokens += 30
        await until_async(lambda: 100 in seen, "a heartbeat has written them")
        hooks["spent"].prompt_tokens += 5

    fake_runner.before = before
    run_task.execute([run.pk], kind=Kind.ACTIVE)
    run.refresh_from_db()
    assert run.tokens_spent == 105, "the first attempt's 70, and no token twice"


def test_a_database_that_stays_silent_stops_the_prompts(settings):
    settings.AUDIT_LEASE_SECONDS = 60
    run = active(a_target())
    claims = run_task.claiming.claim([run.pk], kind=Kind.ACTIVE)
    work = run_task._load(claims)[0]
    assert work.permission.stopped() == ""
    work.confirmed -= 50
    assert "has not confirmed" in work.permission.stopped()
