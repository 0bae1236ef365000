"""A worker whose clock is wrong says so, and beyond a minute takes no work; beat's messages do not expire."""

from __future__ import annotations

import logging
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.conf import settings
from kombu.exceptions import ChannelError

from kvaudit import celery
from kvaudit.server.audits import tasks
from kvaudit.server.audits.execution import enqueue, worker_clocks
from kvaudit.server.audits.models import Run, RunState, WorkerClock
from tests.server.audits.builders import a_run, a_target

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(celery.OnTime, "rest", 0)
    monkeypatch.setattr(worker_clocks, "_last_report", worker_clocks._LastReport())


def noted():
    return {clock.name: (round(clock.skew), clock.refuses) for clock in WorkerClock.objects.all()}


@pytest.mark.parametrize(
    ("seconds", "works", "said", "level"),
    [
        (0, True, "", 0),
        (-4, True, "", 0),
        (7, True, "7 s ahead", logging.WARNING),
        (-59, True, "59 s behind", logging.WARNING),
        (61, False, "takes no work", logging.ERROR),
        (7200, False, "2 h 0 min ahead", logging.ERROR),
        (-7200, False, "2 h 0 min behind", logging.ERROR),
    ],
)
def test_how_far_off_is_said_and_from_a_minute_no_work_is_taken(machine, caplog, seconds, works, said, level):
    machine(timedelta(seconds=seconds))
    assert worker_clocks.may_work("passive@here") is works
    assert noted() == {"passive@here": (seconds, not works)}
    spoken = [record for record in caplog.records if record.name == worker_clocks.__name__]
    assert [record.levelno for record in spoken] == ([level] if level else [])
    assert said in caplog.text
    assert worker_clocks.may_work("passive@here") is works
    assert len([record for record in caplog.records if record.name == worker_clocks.__name__]) == len(spoken)


def test_a_clock_that_was_put_right_works_again_at_once(machine, caplog):
    machine(timedelta(hours=2))
    assert not worker_clocks.may_work("passive@here")
    machine(timedelta(0))
    assert worker_clocks.may_work("passive@here")
    assert noted() == {"passive@here": (0, False)}
    assert "goes with the database's again" in caplog.text


@pytest.mark.parametrize("kind", ["passive", "active"])
def test_a_run_is_left_to_others_and_rung_for_anew(
    machine, fake_runner, enqueued, kind, django_capture_on_commit_callbacks
):
    run = a_run(a_target(), kind=kind)
    with django_capture_on_commit_callbacks(execute=True):
        enqueue.enqueue_due()
    task, argument = (
        (tasks.execute_passive, [run.pk]) if kind == "passive" else (tasks.execute_active, run.pk)
    )
    machine(timedelta(hours=2))
    task.apply(args=[argument], throw=True)
    run.refresh_from_db()
    assert (run.state, run.rung_at, run.rings, run.attempt) == (RunState.QUEUED, None, 0, 0)
    assert fake_runner.ran == []
    machine(timedelta(0))
    Run.objects.update(not_before=run.created_at)
    with django_capture_on_commit_callbacks(execute=True):
        assert enqueue.enqueue_due() == 1
    task.apply(args=[argument], throw=True)
    run.refresh_from_db()
    assert run.state == RunState.FINISHED


@pytest.mark.parametrize("name", sorted({entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}))
def test_every_task_of_beat_is_left_to_others(machine, monkeypatch, name):
    celery.app.loader.import_default_modules()
    task = celery.app.tasks[name]
    did = []
    monkeypatch.setattr(task, "run", lambda *args: did.append(args))
    machine(timedelta(hours=-2))
    task.apply(throw=True)
    assert did == []
    machine(timedelta(0))
    task.apply(throw=True)
    assert did == [()]


def test_no_message_of_beat_expires():
    """It is judged by the clocks of two machines: a worker 2 h ahead threw every one away as revoked."""
    for entry in settings.CELERY_BEAT_SCHEDULE.values():
        assert "expires" not in entry["options"]


@pytest.mark.parametrize(("waiting", "sent"), [(0, 1), (49, 1), (50, 0), (5_000, 0), (None, 1)])
def test_beat_adds_nothing_to_a_pile_that_nobody_takes(monkeypatch, waiting, sent):
    scheduler = celery.BeatScheduler(app=celery.app, lazy=True)
    told = []

    def declare(queue, passive):
        assert (queue, passive) == ("maintenance", True)
        if waiting is None:
            raise ChannelError("no such queue")
        return SimpleNamespace(message_count=waiting)

    connection = SimpleNamespace(
        default_channel=SimpleNamespace(queue_declare=declare),
        connection_errors=(),
        channel_errors=(ChannelError,),
    )
    monkeypatch.setattr(celery.BeatScheduler, "connection", connection)
    monkeypatch.setattr(
        celery.Scheduler, "apply_entry", lambda self, entry, producer=None: told.append(entry)
    )
    scheduler.apply_entry(
        scheduler.Entry(name="x", task="t", schedule=15.0, options={"queue": "maintenance"}, app=celery.app)
    )
    assert len(told) == sent
