"""Delivery against a real receiver on loopback: signature, back-off, claims, no leaked paths."""

from __future__ import annotations

from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.utils import timezone

from kvaudit.server.notify import delivery
from kvaudit.server.notify.models import Channel, OutboxMessage
from kvaudit.server.notify.tasks import deliver
from tests.server.notify.receiver import Receiver, a_message

pytestmark = pytest.mark.django_db


def again(message: OutboxMessage) -> None:
    OutboxMessage.objects.filter(pk=message.pk).update(next_attempt_at=timezone.now() - timedelta(days=1))


@pytest.mark.parametrize("status", [500, 404, 302, 429])
def test_a_refusal_is_tried_again_later_and_says_why_without_the_path(
    receiver: Receiver, status: int
) -> None:
    message = a_message(receiver.url)
    receiver.status = status
    before = timezone.now()
    assert deliver() == 0
    message.refresh_from_db()
    assert (message.state, message.attempts) == ("pending", 1)
    assert str(status) in message.last_problem
    assert "path-secret" not in message.last_problem
    pause = delivery.pause_after(1)
    assert before + pause <= message.next_attempt_at <= timezone.now() + pause
    receiver.status = 200
    again(message)
    assert deliver() == 1


def test_a_receiver_that_is_away_is_given_up_in_the_end(unused_port: int) -> None:
    message = a_message(f"http://127.0.0.1:{unused_port}/hook/path-secret")
    for _ in range(delivery.MOST_ATTEMPTS):
        again(message)
        deliver()
    message.refresh_from_db()
    assert (message.state, message.attempts) == ("failed", delivery.MOST_ATTEMPTS)
    assert "path-secret" not in message.last_problem
    again(message)
    assert deliver() == 0


@pytest.fixture
def unused_port() -> int:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.server_close()
    return server.server_port


def test_the_back_off_doubles_up_to_six_hours() -> None:
    pauses = [delivery.pause_after(attempts) for attempts in range(1, 13)]
    assert pauses[:3] == [timedelta(seconds=30), timedelta(minutes=1), timedelta(minutes=2)]
    assert pauses[-1] == timedelta(hours=6)
    assert pauses == sorted(pauses)


def test_a_claimed_message_is_not_taken_by_another_worker(receiver: Receiver) -> None:
    message = a_message(receiver.url)
    [mine] = delivery.claim(10)
    assert delivery.claim(10) == []
    # the first worker was too slow: its claim lapsed and another took the message
    again(message)
    [theirs] = delivery.claim(10)
    delivery.note(mine, "too late")
    message.refresh_from_db()
    assert message.last_problem == ""
    delivery.note(theirs, "")
    message.refresh_from_db()
    assert message.state == "sent"


def test_a_channel_that_is_off_keeps_its_messages(receiver: Receiver) -> None:
    a_message(receiver.url)
    Channel.objects.update(enabled=False)
    assert deliver() == 0
    Channel.objects.update(enabled=True)
    assert deliver() == 1


def test_a_lost_encryption_key_is_a_sentence_not_a_crash(receiver: Receiver, settings: Any) -> None:
    message = a_message(receiver.url)
    settings.ENCRYPTION_KEYS = ["AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]
    assert deliver() == 0
    message.refresh_from_db()
    assert "ENCRYPTION_KEYS" in message.last_problem


@pytest.mark.django_db(transaction=True)
def test_rows_locked_by_another_worker_are_skipped(receiver: Receiver) -> None:
    message = a_message(receiver.url)
    database = connection.settings_dict
    with psycopg.connect(host=database["HOST"], user=database["USER"], dbname=database["NAME"]) as other:
        other.execute("SELECT 1 FROM notify_outboxmessage WHERE id = %s FOR UPDATE", [message.pk])
        assert delivery.claim(10) == []
        other.rollback()
    assert [each.pk for each in delivery.claim(10)] == [message.pk]
