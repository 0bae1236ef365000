"""Claims, leases and fences, with real transactions and real competitors."""

import threading
import uuid
from collections import Counter
from datetime import timedelta

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone

from kvaudit.server.audits.execution import claims as claiming
from kvaudit.server.audits.execution.claims import Claim
from kvaudit.server.audits.models import Kind, Run
from tests.server.audits.builders import a_run, a_target
from tests.waiting import PATIENCE


def compete(count, act):
    """Run ``act`` in so many threads at once; returns what each returned."""
    gate, found, faults = threading.Barrier(count), [], []

    def one():
        try:
            gate.wait(PATIENCE)
            found.append(act())
        except Exception as fault:  # noqa: BLE001 - shown by the test
            faults.append(fault)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not faults, faults
    return found


@pytest.mark.django_db(transaction=True)
def test_two_hundred_claims_of_the_same_runs_give_each_to_one():
    ids = [a_run(a_target()).pk for _ in range(20)]

    def greedy():
        return [claim.run_id for _ in range(20) for claim in claiming.claim(ids, kind=Kind.PASSIVE)]

    won = Counter(run_id for one in compete(10, greedy) for run_id in one)
    assert won == dict.fromkeys(ids, 1)
    assert set(Run.objects.values_list("attempt", flat=True)) == {1}


@pytest.mark.django_db(transaction=True)
def test_one_active_set_per_deployment_whoever_claims():
    target = a_target()
    ids = [a_run(target, kind=Kind.ACTIVE).pk for _ in range(8)]
    pending = list(ids)
    won = compete(8, lambda: claiming.claim([pending.pop()], kind=Kind.ACTIVE))
    assert sum(map(len, won)) == 1
    assert Run.objects.filter(state="running").count() == 1
    assert Run.objects.filter(state="queued").count() == 7


@pytest.mark.django_db
def test_claimed_are_only_runs_that_are_due_queued_and_wanted():
    now = timezone.now()
    ready = a_run(a_target())
    others = [
        a_run(a_target(), not_before=now + timedelta(minutes=1)),
        a_run(a_target(), expires_at=now - timedelta(seconds=1)),
        a_run(a_target(), state="running", lease_token=uuid.uuid4(), lease_until=now - timedelta(hours=1)),
        a_run(a_target(), state="missed"),
        a_run(a_target(), cancel_requested_at=now),
        a_run(a_target(), kind=Kind.ACTIVE),
    ]
    claims = claiming.claim([ready.pk, *(run.pk for run in others)], kind=Kind.PASSIVE)
    assert [(claim.run_id, claim.attempt) for claim in claims] == [(ready.pk, 1)]


@pytest.mark.django_db
def test_active_and_passive_runs_of_a_deployment_go_side_by_side():
    target = a_target()
    active, passive = a_run(target, kind=Kind.ACTIVE), a_run(target)
    assert claiming.claim([active.pk], kind=Kind.ACTIVE)
    assert claiming.claim([passive.pk], kind=Kind.PASSIVE)


@pytest.mark.django_db
def test_the_lease_goes_by_the_clock_of_the_database(settings):
    settings.AUDIT_LEASE_SECONDS = 3600
    run = a_run(a_target())
    claiming.claim([run.pk], kind=Kind.PASSIVE)
    with connection.cursor() as cursor:
        cursor.execute("SELECT lease_until - statement_timestamp() FROM audits_run WHERE id = %s", [run.pk])
        left = cursor.fetchone()[0]
    assert timedelta(minutes=55) < left <= timedelta(minutes=60)


@pytest.mark.django_db
def test_a_fence_lets_only_the_holder_of_the_token_through():
    run = a_run(a_target())
    (mine,) = claiming.claim([run.pk], kind=Kind.PASSIVE)
    stranger = Claim(run.pk, uuid.uuid4(), 1)
    with transaction.atomic():
        assert list(claiming.fence([mine])) == [run.pk]
        assert claiming.fence([stranger]) == {}


@pytest.mark.django_db
def test_heartbeat_renews_tells_progress_and_brings_cancellations():
    runs = [a_run(a_target()) for _ in range(3)]
    claims = claiming.claim([run.pk for run in runs], kind=Kind.PASSIVE)
    first, second, third = runs
    old = Run.objects.get(pk=first.pk).lease_until
    Run.objects.filter(pk=second.pk).update(cancel_requested_at=timezone.now())
    Run.objects.filter(pk=third.pk).update(lease_token=uuid.uuid4())
    assert claiming.heartbeat(claims, {first.pk: '{"read": 1}'}) == {first.pk: False, second.pk: True}
    first.refresh_from_db()
    assert first.progress == {"read": 1}
    assert first.lease_until > old
    second.refresh_from_db()
    assert second.progress == {}


@pytest.mark.django_db
def test_released_runs_were_never_tried():
    run = a_run(a_target())
    claims = claiming.claim([run.pk], kind=Kind.PASSIVE)
    assert claiming.release(claims, delay=timedelta(minutes=1)) == 1
    run.refresh_from_db()
    assert (run.state, run.attempt, run.lease_token) == ("queued", 0, None)
    assert run.not_before > timezone.now()
