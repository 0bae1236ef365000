"""Data of an earlier release, whose workers went by their own clocks: nothing in it hides a fail."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.audits.models import CheckState, Result, Run
from kvaudit.server.audits.state import intervals, record_check, status
from kvaudit.server.audits.state import wrong_clock_repair as unheard
from kvaudit.server.fleet.models import NodeSnapshot
from kvaudit.server.incidents import opening
from kvaudit.server.incidents.models import Incident
from kvaudit.server.ledger.services import record
from tests.factories import a_node
from tests.server.audits.builders import a_run, a_target

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def said(target, verdict, at, severity=""):
    """A result as the old release kept it; whether it entered state is up to the caller."""
    run = a_run(target, checks=["rejection"])
    return Result.objects.create(
        run=run, deployment=target, attempt=1, check_id="rejection", verdict=verdict, severity=severity,
        summary=f"rejection says {verdict}", measures={}, observed_at=at,
    )  # fmt: skip


def stood(result, since, confirmed, closed=None):
    return CheckState.objects.create(
        deployment_id=result.deployment_id, check_id="rejection", verdict=result.verdict, since=since,
        last_confirmed=confirmed, closed_at=closed, expires_at=confirmed + 7 * 24 * HOUR, run=result.run, result=result,
    )  # fmt: skip


@pytest.mark.parametrize("ahead", [timedelta(minutes=1), 2 * HOUR, 24 * 400 * HOUR])
def test_a_fail_hidden_by_a_pass_of_the_future_stands_after_the_upgrade(ahead):
    target, now = a_target(), clock.now()
    stood(said(target, "pass", now + ahead), now - HOUR, now + ahead)
    said(target, "fail", now - timedelta(minutes=5), severity="critical")
    assert status.status_of(target).checks["rejection"].verdict == Verdict.PASS, "hidden, in the old release"
    assert unheard.mend() == unheard.Mended(moments=1, fails=1)
    held = status.status_of(target).checks["rejection"]
    assert (held.verdict, held.severity) == (Verdict.FAIL, "critical")
    assert opening.consume() == 1
    assert Incident.objects.get().state == "open"
    assert unheard.mend() == unheard.Mended(0, 0), "once"


def test_a_fail_of_a_worker_that_was_behind_stands_after_the_upgrade():
    target, now = a_target(), clock.now()
    stood(said(target, "pass", now), now - 3 * HOUR, now)
    said(target, "fail", now - 2 * HOUR)
    assert unheard.mend() == unheard.Mended(0, 1)
    assert CheckState.objects.get(closed_at=None).verdict == "fail"


def test_a_pass_of_the_future_is_expired_and_a_fail_goes_on():
    now = clock.now()
    passed, failed = a_target(), a_target()
    stood(said(passed, "pass", now + HOUR), now - HOUR, now + HOUR)
    stood(said(failed, "fail", now + HOUR), now + HOUR, now + HOUR)
    unheard.mend()
    held = status.status_of(passed).checks["rejection"]
    assert (held.verdict, held.expired_by) == (Verdict.INCONCLUSIVE, "wrong clock")
    assert status.status_of(failed).checks["rejection"].verdict == Verdict.FAIL
    assert not CheckState.objects.filter(last_confirmed__gt=clock.now()).exists()


def test_intervals_that_were_closed_in_the_future_are_brought_back():
    target, now = a_target(), clock.now()
    stood(said(target, "pass", now), now - HOUR, now, closed=now + 2 * HOUR)
    stood(said(target, "fail", now + 2 * HOUR), now + 2 * HOUR, now + 2 * HOUR)
    unheard.mend()
    assert [each.verdict for each in CheckState.objects.as_of(clock.now())] == ["fail"]


def test_what_is_in_order_is_left_alone():
    target, now = a_target(), clock.now()
    failed = said(target, "fail", now - 3 * HOUR)
    stood(failed, now - 3 * HOUR, now - 2 * HOUR, closed=now - HOUR)
    stood(said(target, "pass", now - HOUR), now - HOUR, now)
    before = list(CheckState.objects.order_by("pk").values())
    assert unheard.mend() == unheard.Mended(0, 0)
    assert list(CheckState.objects.order_by("pk").values()) == before


def test_readings_of_the_future_are_brought_back():
    target, now = a_target(), clock.now()
    node = a_node(target, "decode-0", role="decode")
    NodeSnapshot.objects.create(
        node=node, first_seen=now, last_confirmed=now + HOUR, engine="sglang", digest="0" * 16, content="0" * 64,
        facts={}, fingerprint={}, reference={},
    )  # fmt: skip
    assert unheard.mend() == unheard.Mended(1, 0)
    assert NodeSnapshot.objects.get().last_confirmed <= clock.now()


def ended(result):
    """Its run, as the ledger records the end of one."""
    Run.objects.filter(pk=result.run_id).update(
        state="finished", verdict=result.verdict, started_at=result.run.created_at, finished_at=clock.now()
    )
    record(actor="system:worker", kind="run.finished", subject=f"run:{result.run_id}", digest="0" * 64)
    return result


def stood_ended(result, since, confirmed):
    state = stood(ended(result), since, confirmed)
    CheckState.objects.filter(pk=state.pk).update(summary=result.summary)


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_what_came_after_a_fail_that_was_passed_over_counts_too(ahead):
    target, now = a_target(), clock.now()
    stood_ended(said(target, "pass", now + ahead), now - 3 * HOUR, now + ahead)
    ended(said(target, "fail", now - timedelta(minutes=50)))
    ended(said(target, "pass", now - timedelta(minutes=40)))
    assert unheard.mend().fails == 1
    assert [(state.verdict, state.closed_at is None) for state in CheckState.objects.order_by("since")] == [
        ("pass", False),
        ("fail", False),
        ("pass", True),
    ]
    assert record_check.contradicted() == ""
    assert unheard.mend() == unheard.Mended(0, 0)
    assert opening.consume() == 1
    assert Incident.objects.get().state == "open"


@pytest.mark.parametrize("upgraded", [True, False], ids=["upgraded", "the database's clock put right"])
def test_a_fail_of_the_future_that_passed_later_breaks_no_record(upgraded):
    target, now = a_target(), clock.now()
    stood_ended(said(target, "fail", now + HOUR), now + HOUR, now + HOUR)
    if upgraded:
        assert unheard.mend().moments == 1
    assert record_check.contradicted() == ""
    passed = ended(said(target, "pass", clock.now()))
    intervals.apply([unheard._observation(passed)])
    assert CheckState.objects.get(closed_at=None).verdict == "pass"
    assert record_check.contradicted() == ""


def test_a_fail_of_its_time_that_was_cut_short_is_named():
    target, now = a_target(), clock.now()
    stood_ended(said(target, "fail", now - HOUR), now - HOUR, now - HOUR)
    passed = ended(said(target, "pass", now - 2 * HOUR))
    CheckState.objects.update(since=now - 3 * HOUR, last_confirmed=now - 2 * HOUR, closed_at=now - 2 * HOUR)
    stood(passed, now - 2 * HOUR, now - 2 * HOUR)
    CheckState.objects.filter(closed_at=None).update(summary=passed.summary)
    assert "not what result" in record_check.contradicted()
