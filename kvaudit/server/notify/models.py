"""Channels and the outbox."""

from __future__ import annotations

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from kvaudit.server import clock
from kvaudit.server.accounts.models import Team
from kvaudit.server.accounts.sealed_fields import SealedField
from kvaudit.server.notify.channels import choices
from kvaudit.server.notify.querysets import ChannelQuerySet, OutboxQuerySet


class Event(models.TextChoices):
    """What a channel can be told of."""

    FAIL = "fail", "A check failed"
    ERROR = "error", "An audit ended in error"
    OVERDUE = "overdue", "An audit is overdue"
    EXPIRING = "expiring", "A waiver or an attestation is about to expire"
    TOO_FAST = "too_fast", "Production prompts were prefilled too fast to be true"
    LEDGER = "ledger", "The ledger was found broken"
    TEST = "test", "Test message"


def every_event() -> list[str]:
    return [event.value for event in Event if event is not Event.TEST]


class Channel(models.Model):
    """Where messages go. A webhook's URL is often a secret of its own, so the address is kept
    encrypted and ``address_shown`` (scheme and host, or the e-mail address) is what pages show.
    Without a team a channel hears of every deployment."""

    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=30, choices=choices)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, null=True, blank=True, related_name="channels")
    address_sealed = SealedField(editable=False, row=("id",))
    address_shown = models.CharField(max_length=300)
    secret_sealed = SealedField(blank=True, editable=False, row=("id",))
    events = ArrayField(models.CharField(max_length=20, choices=Event.choices), default=every_event)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=clock.now)

    objects = ChannelQuerySet.as_manager()

    class Meta:
        ordering = ("name", "pk")

    def __str__(self) -> str:
        return f"{self.name} ({self.address_shown})"


class Delivery(models.TextChoices):
    PENDING = "pending", "Waiting"
    SENT = "sent", "Sent"
    FAILED = "failed", "Given up"


class OutboxMessage(models.Model):
    """One message for one channel, written in the transaction of what it tells.

    ``next_attempt_at`` is when a worker may claim it; a claim moves it ahead, so a worker that
    dies in between costs a delay and at worst a second delivery (``id`` tells receivers)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="messages")
    event = models.CharField(max_length=20, choices=Event.choices)
    subject = models.CharField(max_length=300)
    payload = models.JSONField()
    state = models.CharField(max_length=10, choices=Delivery.choices, default=Delivery.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField(default=clock.now)
    created_at = models.DateTimeField(default=clock.now)
    sent_at = models.DateTimeField(null=True, blank=True)
    last_problem = models.CharField(max_length=500, blank=True)

    objects = OutboxQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at",)
        indexes = (
            models.Index(
                fields=("next_attempt_at",), condition=Q(state="pending"), name="notify_outbox_pending"
            ),
            models.Index(fields=("channel", "-created_at"), name="notify_outbox_channel_time"),
        )

    def __str__(self) -> str:
        return self.subject
