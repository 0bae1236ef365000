"""A loop that stands still: its run ends, the runs beside it go on, and the process is replaced."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator

import pytest

from kvaudit.server.audits import tasks
from kvaudit.server.audits.execution import probe_thread, run_task
from kvaudit.server.audits.execution.probe_thread import ProbeThread
from kvaudit.server.audits.models import Kind, Result
from tests.server.audits.builders import a_run, a_target
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.django_db


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """Waits for ever without giving the loop back, as an open of /dev/ptmx did; let go at the end."""
    release = threading.Event()
    yield release
    release.set()
    for thread in probe_thread._abandoned:
        thread.join(PATIENCE)
    probe_thread._abandoned.clear()


@pytest.fixture(autouse=True)
def quick(settings) -> None:
    settings.AUDIT_LEASE_SECONDS = 2
    settings.AUDIT_HEARTBEAT_SECONDS = 0.2


def blocks(release, *slugs):
    def before(target, cancelled):
        if target.slug in slugs:
            release.wait(300)

    return before


def runs_of(*slugs, kind=Kind.PASSIVE):
    return [a_run(a_target(slug), kind=kind) for slug in slugs]


def test_a_coroutine_that_never_yields_ends_as_error_and_stops_nobody_else(fake_runner, stuck, caplog):
    """The old desk went on confirming the leases of all of them, for ever."""
    fake_runner.before = blocks(stuck, "first", "fourth")
    runs = runs_of("first", "second", "third", "fourth")
    assert run_task.execute([run.pk for run in runs], kind=Kind.PASSIVE) == 4
    for run in runs:
        run.refresh_from_db()
    assert [run.verdict for run in runs] == ["error", "pass", "pass", "error"]
    assert "event loop stood still" in runs[0].summary
    assert {run.attempt for run in runs} == {1}
    assert Result.objects.filter(run=runs[1]).count() == 2, "begun again, written once"
    assert "release.wait" in caplog.text, "the operator's log names the line"


def test_what_the_old_loop_says_after_it_wakes_up_counts_no_more(fake_runner, stuck):
    def wake() -> None:  # between the first standstill and the second
        until(lambda: probe_thread._abandoned, "the first standstill")
        stuck.set()

    woken = threading.Thread(target=wake)
    woken.start()
    fake_runner.before = blocks(stuck, "late")
    runs = runs_of("late", "other")
    run_task.execute([run.pk for run in runs], kind=Kind.PASSIVE)
    woken.join()
    assert [Result.objects.filter(run=run).count() for run in runs] == [2, 2]


def test_a_run_that_sends_prompts_is_not_begun_again(fake_runner, stuck):
    fake_runner.before = blocks(stuck, "active")
    (run,) = runs_of("active", kind=Kind.ACTIVE)
    run_task.execute([run.pk], kind=Kind.ACTIVE)
    run.refresh_from_db()
    assert (run.verdict, run.attempt) == ("error", 1)
    assert "stood still" in run.summary
    assert fake_runner.ran == ["active"]


def test_a_process_with_a_loop_that_never_came_back_is_replaced(fake_runner, stuck):
    fake_runner.before = blocks(stuck, "alone")
    (run,) = runs_of("alone")
    with pytest.raises(SystemExit) as left:
        tasks.execute_passive([run.pk])
    assert left.value.code == probe_thread.RECYCLE
    run.refresh_from_db()
    assert (run.state, run.verdict) == ("finished", "error")
    stuck.set()
    for thread in probe_thread._abandoned:
        thread.join(PATIENCE)
    tasks.execute_passive([run.pk])  # the message comes again: nothing to do, and nothing to leave for


def test_a_process_whose_loops_ended_stays(fake_runner):
    (run,) = runs_of("sound")
    tasks.execute_passive([run.pk])
    run.refresh_from_db()
    assert run.verdict == "pass"


def test_a_frozen_process_is_no_standstill(monkeypatch):
    """After a stop of the whole process the loop is not blamed for the time in which nobody ran."""
    prober = ProbeThread([], queue.SimpleQueue())
    now = time.monotonic()
    moments = iter([now, now + 0.5, now + 3600.0, now + 3600.5])
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    assert [prober.standstill() for _ in range(4)] == [0.0, 0.5, 1.5, 2.0]
