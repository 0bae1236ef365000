"""The outbox is written with what it tells, or not at all."""

from __future__ import annotations

import threading

import pytest
from django.core.exceptions import PermissionDenied
from django.db import transaction

from kvaudit.server import broker
from kvaudit.server.notify import services
from kvaudit.server.notify.models import Channel, OutboxMessage
from kvaudit.server.notify.services import create_channel
from tests import factories

pytestmark = pytest.mark.django_db


def a_channel(**fields: object) -> Channel:
    given = {"kind": "email", "name": "on call", "address": "oncall@example.org", "actor": "system:tests"}
    return create_channel(**{**given, **fields})[0]  # type: ignore[arg-type]


def test_a_message_per_channel_that_hears_of_it() -> None:
    team, other = factories.a_team(), factories.a_team()
    everybody, ours = a_channel(name="everybody"), a_channel(name="ours", team=team)
    a_channel(name="theirs", team=other)
    a_channel(name="only overdue", team=team, events=["overdue"])
    off = a_channel(name="off", team=team)
    off.enabled = False
    off.save()

    messages = services.enqueue(event="fail", subject="pool of x failed", payload={"run": 7}, team=team)
    assert {message.channel for message in messages} == {everybody, ours}
    assert set(OutboxMessage.objects.values_list("state", "attempts", "subject")) == {
        ("pending", 0, "pool of x failed")
    }
    assert set(OutboxMessage.objects.due()) == set(messages)


def test_a_rolled_back_event_is_not_told() -> None:
    team = factories.a_team()
    a_channel()
    with transaction.atomic():
        services.enqueue(event="error", subject="s", payload={}, team=team)
        transaction.set_rollback(True)
    assert not OutboxMessage.objects.exists()


def test_without_channels_nothing_is_written() -> None:
    assert services.enqueue(event="fail", subject="s", payload={}, team=factories.a_team()) == []


def test_an_unknown_event_is_an_error() -> None:
    with pytest.raises(ValueError, match="vanished"):
        services.enqueue(event="vanished", subject="s", payload={}, team=factories.a_team())


def test_what_looks_like_a_secret_is_redacted() -> None:
    a_channel()
    payload = {
        "summary": "called with --api-key sk-live-abcdef123456\x00",
        "detail": {"api_key": "sk-live-abcdef123456", "pool": 681_280},
    }
    message = services.enqueue(
        event="fail",
        subject="Authorization: Bearer sk-live-abcdef123456\r\nBcc: x",
        payload=payload,
        team=factories.a_team(),
    )[0]
    message.refresh_from_db()
    assert "sk-live" not in str(message.payload) + message.subject
    assert message.payload["detail"]["pool"] == 681_280
    assert "\n" not in message.subject


def test_a_broker_that_is_away_does_not_break_the_caller(
    django_capture_on_commit_callbacks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: object, **__: object) -> None:
        raise ConnectionRefusedError("no broker")

    monkeypatch.setattr(broker.current_app, "send_task", away)
    a_channel()
    with django_capture_on_commit_callbacks(execute=True):
        services.enqueue(event="fail", subject="s", payload={}, team=factories.a_team())
    assert OutboxMessage.objects.due().count() == 1
    assert "wait for the broker" in caplog.text


def test_a_worker_is_rung_once_per_event_after_commit(
    django_capture_on_commit_callbacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[str] = []
    monkeypatch.setattr(broker.current_app, "send_task", lambda name, **_: rung.append(name))
    a_channel()
    a_channel(name="second")
    with django_capture_on_commit_callbacks(execute=True):
        services.enqueue(event="fail", subject="s", payload={}, team=factories.a_team())
        assert rung == []
    assert rung == ["kvaudit.notify.tasks.deliver"]


def test_only_who_manages_channels_sends_a_test() -> None:
    team = factories.a_team()
    channel = a_channel(team=team)
    for user in (factories.a_user(team=team, role="approver"), factories.a_user()):
        with pytest.raises(PermissionDenied):
            services.send_test(channel=channel, actor=user)
    message = services.send_test(channel=channel, actor=factories.a_user(team=team, role="admin"))
    assert (message.event, message.state) == ("test", "pending")


def test_every_thread_rings_through_our_celery_application() -> None:
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.append(broker.current_app.main))
    thread.start()
    thread.join()
    assert seen == ["kvaudit"]


def test_trying_again_is_for_what_was_not_delivered_and_for_who_manages_channels() -> None:
    team = factories.a_team()
    message = services.send_test(channel=a_channel(team=team), actor="system:tests")
    OutboxMessage.objects.update(state="failed", attempts=12)
    with pytest.raises(PermissionDenied):
        services.try_again(message=message, actor=factories.a_user(team=team, role="approver"))
    assert not OutboxMessage.objects.due().exists()
    assert services.try_again(message=message, actor=factories.a_user(team=team, role="admin"))
    assert OutboxMessage.objects.due().get().attempts == 12
    OutboxMessage.objects.update(state="sent")
    assert not services.try_again(message=message, actor="system:tests")
    assert OutboxMessage.objects.get().state == "sent"
