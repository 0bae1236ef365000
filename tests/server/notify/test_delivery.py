"""Delivery against a real receiver on loopback: signature, back-off, claims, no leaked paths."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psycopg
import pytest
from django.core import mail
from django.db import connection
from django.utils import timezone

from kvaudit.server.notify import delivery, services
from kvaudit.server.notify.channels import create_channel, opened
from kvaudit.server.notify.models import Channel, OutboxMessage
from kvaudit.server.notify.signing import HEADER, holds
from kvaudit.server.notify.tasks import deliver
from tests import factories

pytestmark = pytest.mark.django_db


class Receiver:
    """Keeps what it gets; answers with ``status``."""

    def __init__(self) -> None:
        self.status = 204
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, dict(self.headers), body))
                self.send_response(receiver.status)
                if receiver.status == 302:
                    self.send_header("Location", "http://169.254.169.254/")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook/path-secret?k=v"
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    running = Receiver()
    yield running
    running.server.shutdown()
    running.server.server_close()


def a_message(url: str, kind: str = "webhook") -> OutboxMessage:
    create_channel(kind=kind, name="c", address=url, actor="system:tests")
    return services.enqueue(
        event="fail",
        subject="pool of glm-prod failed",
        payload={"summary": "The pool holds 681,280 tokens.", "next": "Raise it.", "run": 7},
        team=factories.a_team(),
    )[0]


def again(message: OutboxMessage) -> None:
    OutboxMessage.objects.filter(pk=message.pk).update(next_attempt_at=timezone.now() - timedelta(days=1))


def test_a_webhook_is_signed_and_sent_once(receiver: Receiver) -> None:
    message = a_message(receiver.url)
    assert deliver() == 1
    assert deliver() == 0

    [(path, headers, body)] = receiver.got
    assert path == "/hook/path-secret?k=v"
    secret = opened(Channel.objects.get())[1]
    assert holds(headers[HEADER], body, secret, int(time.time()))
    assert headers["X-KVAudit-Delivery"] == str(message.pk)
    assert json.loads(body)["payload"] == {
        "summary": "The pool holds 681,280 tokens.",
        "next": "Raise it.",
        "run": 7,
    }
    assert secret.encode() not in body
    message.refresh_from_db()
    assert (message.state, message.attempts, message.last_problem) == ("sent", 1, "")


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


def test_an_e_mail_reads_like_a_letter() -> None:
    a_message("oncall@example.org", "email")
    assert deliver() == 1
    [letter] = mail.outbox
    assert (letter.to, letter.subject) == (["oncall@example.org"], "[kvaudit] pool of glm-prod failed")
    assert letter.body == (
        "pool of glm-prod failed\n\nThe pool holds 681,280 tokens.\n\nRaise it.\n\nrun: 7\n"
    )


def test_a_mail_server_that_is_away_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any, **__: Any) -> int:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(delivery.EmailMessage, "send", away)
    message = a_message("oncall@example.org", "email")
    assert deliver() == 0
    message.refresh_from_db()
    assert message.state == "pending"
    assert "did not take the message" in message.last_problem


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
