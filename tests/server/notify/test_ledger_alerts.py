"""A ledger that was found broken is told of once, to every channel that hears of it."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module

import pytest
from django.db import connection
from django.utils import timezone

from kvaudit.server.ledger.models.verifications import Verification
from kvaudit.server.notify import tasks
from kvaudit.server.notify.models import Channel, OutboxMessage
from tests.factories import a_team
from tests.server.notify.test_services import a_channel

pytestmark = pytest.mark.django_db


def found(outcome: str, hours_ago: int) -> None:
    at = timezone.now() - timedelta(hours=hours_ago)
    Verification.objects.create(
        asked_by="system:tests", asked_at=at, finished_at=at, outcome=outcome, sentence="Entry 3 was altered."
    )


def test_every_channel_that_hears_of_it_is_told_once() -> None:
    everywhere, of_a_team = a_channel(events=["ledger"]), a_channel(events=["fail", "ledger"], team=a_team())
    a_channel(events=["fail"])
    Channel.objects.filter(pk=a_channel(events=["ledger"]).pk).update(enabled=False)
    found("intact", 30)
    assert not tasks.notify_of_ledger()
    found("broken", 6)
    found("broken", 5)
    assert tasks.notify_of_ledger()
    assert not tasks.notify_of_ledger()
    told = OutboxMessage.objects.all()
    assert {each.channel for each in told} == {everywhere, of_a_team}
    assert {each.event for each in told} == {"ledger"}
    assert told[0].subject.startswith("The ledger was found broken on ")
    assert "found it in order" not in told[0].payload["summary"]
    assert told[0].payload["url"].endswith("/settings/ledger/")
    assert "Entry 3" not in str(told[0].payload), "entries are for those who may read the ledger"


def test_it_is_told_again_only_after_it_was_in_order() -> None:
    a_channel(events=["ledger"])
    found("broken", 50)
    assert tasks.notify_of_ledger()
    found("error", 40)  # came to know nothing
    found("broken", 30)
    assert not tasks.notify_of_ledger()
    found("intact", 20)
    found("broken", 10)
    assert tasks.notify_of_ledger()
    assert OutboxMessage.objects.count() == 2


def test_a_second_break_is_told_that_came_before_anybody_looked() -> None:
    a_channel(events=["ledger"])
    found("broken", 50)
    assert tasks.notify_of_ledger()
    found("broken", 40)
    found("intact", 30)
    found("broken", 20)
    assert tasks.notify_of_ledger()
    found("intact", 10)
    found("broken", 5)
    found("intact", 1)
    assert tasks.notify_of_ledger()
    assert "A later verification found it in order." in OutboxMessage.objects.first().payload["summary"]
    assert OutboxMessage.objects.count() == 3


def test_while_no_channel_hears_of_it_it_stays_to_be_told() -> None:
    found("broken", 50)
    found("broken", 40)
    assert not tasks.notify_of_ledger()
    a_channel(events=["ledger"])
    assert tasks.notify_of_ledger()
    assert not tasks.notify_of_ledger()
    assert OutboxMessage.objects.count() == 1


def test_breaks_before_the_upgrade_are_told_where_they_last() -> None:
    a_channel(events=["ledger"])
    for outcome, hours_ago in (("broken", 90), ("intact", 80), ("broken", 70), ("broken", 60)):
        found(outcome, hours_ago)
    with connection.cursor() as cursor:
        cursor.execute(import_module("kvaudit.server.ledger.migrations.0004_told").OVER)
    assert list(Verification.objects.order_by("finished_at").values_list("told", flat=True)) == [
        True, False, False, False,
    ]  # fmt: skip
    assert tasks.notify_of_ledger()
    since = timezone.now() - timedelta(hours=70)
    assert OutboxMessage.objects.get().subject == f"The ledger was found broken on {since:%Y-%m-%d %H:%M} UTC"


def test_nothing_is_said_of_a_ledger_in_order_or_never_looked_at() -> None:
    a_channel(events=["ledger"])
    assert not tasks.notify_of_ledger()
    found("intact", 2)
    found("error", 1)
    assert not tasks.notify_of_ledger()
    assert not OutboxMessage.objects.exists()
