"""Putting messages into the outbox, in the transaction of what they tell."""

from __future__ import annotations

from typing import Any

import orjson
from django.db import transaction
from django.db.models.functions import Now

from kvaudit.auditor.transport import Redactor, redact_text
from kvaudit.server import broker
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.accounts.models import Team
from kvaudit.server.ledger.services import record
from kvaudit.server.notify.models import Channel, Delivery, Event, OutboxMessage


def enqueue(*, event: str, subject: str, payload: dict[str, Any], team: Team | None) -> list[OutboxMessage]:
    """One message for every channel that hears of this event of this team's deployments; without a team, for every
    channel that hears of it.

    Call it inside the transaction that makes the event true: both are kept, or neither. ``payload``
    is plain JSON; anything in it that looks like a secret is redacted. Nothing is sent here.
    """
    kind = Event(event)
    channels = Channel.objects.hearing(kind.value, team)
    return _put(list(channels), kind, subject, payload)


@transaction.atomic
def send_test(*, channel: Channel, actor: Actor) -> OutboxMessage:
    """A test message through the same outbox and the same signature as real ones."""
    require(actor, "manage_channels", channel.team)
    subject = "kvaudit test message"
    payload = {"summary": f"This is a test of the channel {channel.name}. Nothing is wrong."}
    message = _put([channel], Event.TEST, subject, payload)[0]
    record(actor=actor, kind="channel.tested", subject=f"channel:{channel.pk}")
    return message


@transaction.atomic
def try_again(*, message: OutboxMessage, actor: Actor) -> bool:
    """One more attempt, now, at a message that waits for its next one or was given up; False where it was
    delivered. One that is being sent this very moment may arrive twice; its id tells."""
    require(actor, "manage_channels", message.channel.team)
    undelivered = OutboxMessage.objects.filter(pk=message.pk).exclude(state=Delivery.SENT.value)
    if not undelivered.update(state=Delivery.PENDING.value, next_attempt_at=Now()):
        return False
    record(
        actor=actor, kind="message.tried_again", subject=f"channel:{message.channel_id} message:{message.pk}"
    )
    transaction.on_commit(_ring)
    return True


def _put(channels: list[Channel], event: Event, subject: str, payload: dict[str, Any]) -> list[OutboxMessage]:
    if not channels:
        return []
    clean_subject = " ".join(redact_text(subject).split())[:300]
    clean_payload = _clean(payload)
    with transaction.atomic():
        messages = OutboxMessage.objects.bulk_create(
            OutboxMessage(
                channel=channel,
                event=event.value,
                subject=clean_subject,
                payload=clean_payload,
                next_attempt_at=Now(),  # the clock that workers compare with
            )
            for channel in channels
        )
        transaction.on_commit(_ring)
    return messages


def _clean(payload: dict[str, Any]) -> Any:
    """Plain JSON that PostgreSQL takes, without what looks like a secret by name or by shape."""
    body, _ = Redactor().body(orjson.dumps(payload, default=str).replace(b"\\u0000", b"\\ufffd"))
    return orjson.loads(body)


def _ring() -> None:
    broker.ring("kvaudit.notify.tasks.deliver", queue="desk", waiting="Messages wait")
