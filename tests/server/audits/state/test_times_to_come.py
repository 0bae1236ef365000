"""What a clock that was wrong wrote into the future is put right by the next audit, with no more rights than a worker has:
tests connect as the owner, whom the guards of the record let pass."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from kvaudit.server import clock
from kvaudit.server.audits.execution import run_task
from kvaudit.server.audits.models import CheckState, Kind
from kvaudit.server.fleet.models import NodeSnapshot
from kvaudit.server.ledger.grants import grant_statements
from tests.server.audits.builders import a_run, a_target, facts

pytestmark = pytest.mark.django_db

ROLE = "times_test_app"
AHEAD = timedelta(hours=2)


@pytest.fixture
def as_the_application():
    """From here on the connection has the application's privileges."""

    def become():
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE ROLE {ROLE}")
            for statement in grant_statements(ROLE):
                cursor.execute(statement)
            cursor.execute(f"SET LOCAL ROLE {ROLE}")

    return become


def audited(target):
    run = a_run(target, checks=["pool"])
    assert run_task.execute([run.pk], kind=Kind.PASSIVE) == 1
    run.refresh_from_db()
    assert run.state == "finished", run.summary


@pytest.mark.parametrize("pool", [2_000_000, 700_000], ids=["unchanged", "changed"])
def test_readings_and_states_of_the_future_do_not_stop_audits(fake_runner, as_the_application, pool):
    target = a_target()
    audited(target)
    later = clock.now() + AHEAD
    NodeSnapshot.objects.update(first_seen=later, last_confirmed=later)
    CheckState.objects.update(since=later, last_confirmed=later)
    as_the_application()
    fake_runner.facts = {target.slug: facts(pool=pool)}
    audited(target)
    snapshot = NodeSnapshot.objects.get(current=True)
    assert snapshot.pool == pool
    assert not clock.is_to_come(snapshot.last_confirmed)
    assert not clock.is_to_come(CheckState.objects.get(closed_at=None).last_confirmed)
