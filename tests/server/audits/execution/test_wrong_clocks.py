"""Workers on machines whose clocks are wrong, in turn: what fails is seen, at the right time, whoever saw it.

One process plays all machines (the fixture `machine`); real processes with shifted clocks are in tests/flows/test_drill_clock.py.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations

import pytest

from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.audits.execution import recovery, run_task
from kvaudit.server.audits.models import CheckState, Kind, Overdue, Result, Run, StateChange
from kvaudit.server.audits.schedule import dispatch
from kvaudit.server.audits.state import status
from kvaudit.server.fleet.models import FingerprintChange, NodeSnapshot
from kvaudit.server.incidents import opening
from kvaudit.server.incidents.models import Incident, Quarantine
from tests.server.audits.builders import a_plan, a_run, a_target, facts, result
from tests.waiting import until

pytestmark = pytest.mark.django_db

AHEAD, RIGHT, BEHIND = timedelta(hours=2), timedelta(0), timedelta(hours=-2)
PASS, FAIL = Verdict.PASS, Verdict.FAIL


def audit(target, actor, verdict, **says):
    actor.says = {
        "rejection": result("rejection", verdict, severity="critical" if verdict is FAIL else ""),
        **says,
    }
    now = clock.database_now()
    due = {"not_before": now - timedelta(seconds=1), "expires_at": now + timedelta(hours=1)}
    run = a_run(target, checks=["rejection"], **due)
    assert run_task.execute([run.pk], kind=Kind.PASSIVE) == 1
    opening.consume()
    run.refresh_from_db()
    return run


def holds(target):
    return CheckState.objects.get(deployment=target, check_id="rejection", closed_at=None)


@pytest.mark.parametrize("offs", list(permutations([AHEAD, RIGHT, BEHIND])), ids=str)
def test_pass_fail_pass_by_three_machines(machine, fake_runner, offs):
    target = a_target()
    for off, verdict in zip(offs, (PASS, FAIL, PASS), strict=True):
        before = clock.database_now()
        machine(off)
        run = audit(target, fake_runner, verdict)
        after = clock.database_now()
        state, seen = holds(target), Result.objects.latest("pk")
        assert (state.verdict, state.result_id) == (verdict.value, seen.pk)
        near = timedelta(seconds=1)
        for moment in (seen.observed_at, state.since, state.last_confirmed, run.started_at, run.finished_at):
            assert before - near <= moment <= after + near
        rolled = status.status_of(target).checks["rejection"]
        assert (rolled.verdict, rolled.expired) == (verdict, False)
        assert Quarantine.objects.current().filter(deployment=target).exists() is (
            Incident.objects.count() > 0
        )
        if verdict is FAIL:
            incident = Incident.objects.get()
            assert before - near <= incident.opened_at <= after + near
            assert status.status_of(target).verdict == FAIL
    assert Incident.objects.count() == 1
    changes = StateChange.objects.filter(check_id="rejection").order_by("at")
    assert [(change.before, change.after) for change in changes] == [
        ("", "pass"),
        ("pass", "fail"),
        ("fail", "pass"),
    ]


@pytest.mark.parametrize("off", [AHEAD, BEHIND])
def test_expiry_is_judged_by_the_databases_time(machine, fake_runner, off):
    """A web process 2 h behind must not take what has expired for a pass, nor one ahead expire what holds."""
    target = a_target()
    machine(RIGHT)
    audit(target, fake_runner, PASS)
    moment = clock.database_now()
    for ends, verdict in (
        (moment - timedelta(hours=1), Verdict.INCONCLUSIVE),
        (moment + timedelta(hours=1), PASS),
    ):
        CheckState.objects.update(expires_at=ends)
        machine(off)
        assert status.status_of(target).checks["rejection"].verdict == verdict
        assert CheckState.objects.current().get().expired is (verdict is not PASS)
        assert recovery.note_expired() == (verdict is not PASS)


@pytest.mark.parametrize("off", [AHEAD, BEHIND])
def test_a_change_of_capacity_is_seen_whatever_clock_read_it_first(machine, fake_runner, off):
    target = a_target()
    machine(off)
    audit(target, fake_runner, PASS)
    machine(RIGHT)
    fake_runner.facts = {target.slug: facts(pool=700_000)}
    audit(target, fake_runner, PASS)
    change = FingerprintChange.objects.get()
    assert abs(change.at - clock.database_now()) < timedelta(minutes=1)
    assert NodeSnapshot.objects.get(current=True).pool == 700_000


@pytest.mark.parametrize("off", [AHEAD, BEHIND])
def test_due_overdue_and_missed_go_by_the_databases_time(machine, fake_runner, off):
    machine(off)
    target = a_target()
    plan = a_plan(target, checks=["pool"], interval=3600)
    done = dispatch.dispatch()
    assert (done.runs, done.missed) == (1, 0)
    run = Run.objects.get()
    assert abs(run.slot - clock.database_now()) < timedelta(minutes=1)
    recovery.recover()
    assert not Overdue.objects.exists()
    run.refresh_from_db()
    assert run.state == "queued"
    assert abs(plan.valid_from - clock.database_now()) < timedelta(minutes=1)


def test_the_skew_is_what_the_machine_is_off(machine):
    for off in (AHEAD, RIGHT, BEHIND, timedelta(seconds=7)):
        # A pause of this machine within the round trip is in the answer: then it is asked again.
        until(lambda off=off: abs(machine(off) - off) < timedelta(seconds=1), f"it is {off} off")
        until(lambda: abs(clock.now() - clock.database_now()) < timedelta(seconds=1), "they agree")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(7, "7 s ahead"), (-61, "1 min 1 s behind"), (7200, "2 h 0 min ahead"), (-3725, "1 h 2 min behind")],
)
def test_skew_in_words(seconds, words):
    assert clock.in_words(timedelta(seconds=seconds)) == words
