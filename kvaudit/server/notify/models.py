"""Channels and the outbox."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Self

from django.contrib.postgres.expressions import ArraySubquery
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import OuterRef, Q
from django.db.models.functions import Now

from kvaudit.server import clock
from kvaudit.server.accounts.access import access_of
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.accounts.sealed_fields import SealedField
from kvaudit.server.notify.channels import choices

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser


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


class ChannelQuerySet(models.QuerySet["Channel"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        """Channels of the teams in which the user manages channels; all for an admin."""
        access = access_of(user)
        if access.everywhere("manage_channels"):
            return self.all()
        return self.filter(team_id__in=access.team_ids_where("manage_channels"))

    def hearing(self, event: str, team: Team | None) -> Self:
        """Enabled channels that are told of this event of a deployment of this team; None: of one that concerns
        every team."""
        concerned = Q() if team is None else Q(team=None) | Q(team=team)
        return self.filter(concerned, enabled=True, events__contains=[event])

    def with_latest(self, count: int) -> Self:
        """Team joined, and the keys of the ``count`` newest messages of each as ``latest`` (a list)."""
        newest = OutboxMessage.objects.filter(channel=OuterRef("pk")).order_by("-created_at", "-pk")
        return self.select_related("team").annotate(latest=ArraySubquery(newest.values("pk")[:count]))


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


class OutboxQuerySet(models.QuerySet["OutboxMessage"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        return self.filter(channel__in=Channel.objects.visible_to(user))

    def due(self) -> Self:
        """Waiting, and to be tried now, by the clock of the database; oldest first."""
        return self.filter(state="pending", next_attempt_at__lte=Now()).order_by("next_attempt_at")


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
