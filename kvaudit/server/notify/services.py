"""Writes of channels, whose addresses and secrets are sealed, and messages put into the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from django.db import transaction
from django.db.models.functions import Now

from kvaudit.auditor.transport import Redactor, redact_text
from kvaudit.server import broker
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.accounts.models import Team
from kvaudit.server.accounts.sealed_fields import place_of
from kvaudit.server.accounts.sealing import seal, unseal
from kvaudit.server.ledger.services import record
from kvaudit.server.notify.channels import BadChannel, kind_of
from kvaudit.server.notify.models import Channel, Delivery, Event, OutboxMessage, every_event

_CHOOSABLE = tuple(each.value for each in Event if each is not Event.TEST)


@transaction.atomic
def create_channel(
    *,
    kind: str,
    name: str,
    address: str,
    actor: Actor,
    team: Team | None = None,
    secret: str = "",
    events: Sequence[str] = (),
) -> tuple[Channel, str]:
    """(channel, secret). Where messages of this kind are signed, the secret is drawn when none is given and cannot be
    read again; "" where they are not. Raises `BadChannel`."""
    require(actor, "manage_channels", team)
    described = kind_of(kind)
    shown, kept = described.shown(address), described.secret(secret)
    chosen = list(events) or every_event()
    if unknown := [event for event in chosen if event not in _CHOOSABLE]:
        raise BadChannel(f"{', '.join(unknown)} is no event; choose from {', '.join(_CHOOSABLE)}.")
    channel = Channel.objects.create(
        kind=kind, name=name[:100], team=team, address_shown=shown, events=chosen
    )
    origins = described.origins(address)
    channel.address_sealed = seal(address.strip(), place_of(channel, "address_sealed"), origins)
    channel.secret_sealed = seal(kept, place_of(channel, "secret_sealed"), origins)
    channel.save(update_fields=["address_sealed", "secret_sealed"])
    record(actor=actor, kind="channel.created", subject=f"channel:{channel.pk}")
    return channel, kept


@transaction.atomic
def switch_channel(*, channel: Channel, enabled: bool, actor: Actor) -> None:
    """On or off; messages already waiting for a channel that is off are kept until it is on."""
    require(actor, "manage_channels", channel.team)
    channel.enabled = enabled
    channel.save(update_fields=["enabled"])
    kind = "channel.enabled" if enabled else "channel.disabled"
    record(actor=actor, kind=kind, subject=f"channel:{channel.pk}")


@transaction.atomic
def remove_channel(*, channel: Channel, actor: Actor) -> None:
    """The channel, its secret and its messages are deleted; the ledger keeps that it was."""
    require(actor, "manage_channels", channel.team)
    record(actor=actor, kind="channel.removed", subject=f"channel:{channel.pk}")
    channel.delete()


def opened(channel: Channel) -> tuple[str, str]:
    """(address, secret) of a channel, for a message that is about to be sent. Raises `SealBroken` for what
    was sealed for another channel, or a secret that was made for another address, and `BadChannel` for a kind that
    this release does not know."""
    address = unseal(channel.address_sealed, place_of(channel, "address_sealed"), sent_to=())
    origins = kind_of(channel.kind).origins(address)
    return address, unseal(channel.secret_sealed, place_of(channel, "secret_sealed"), sent_to=origins)


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
    transaction.on_commit(_notify_worker)
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
        transaction.on_commit(_notify_worker)
    return messages


def _clean(payload: dict[str, Any]) -> Any:
    """Plain JSON that PostgreSQL takes, without what looks like a secret by name or by shape."""
    body, _ = Redactor().body(orjson.dumps(payload, default=str).replace(b"\\u0000", b"\\ufffd"))
    return orjson.loads(body)


def _notify_worker() -> None:
    broker.notify_worker("kvaudit.notify.tasks.deliver", queue="maintenance", waiting="Messages wait")
