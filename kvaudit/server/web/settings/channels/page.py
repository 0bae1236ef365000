"""Channels and what became of their messages, in sentences."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q
from django.urls import reverse
from django.utils.dateparse import parse_datetime

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.accounts.models import User
from kvaudit.server.notify.delivery import MOST_ATTEMPTS
from kvaudit.server.notify.models import Channel, Delivery, Event, OutboxMessage
from kvaudit.server.web.kit import times, untrusted
from kvaudit.server.web.kit.listing import Page
from kvaudit.server.web.kit.progress import Live

LATEST = 3
PAGE_SIZE = 50
MOST_CHANNELS = 500
LONG = timedelta(seconds=60)
"""A message that nobody has tried for so long finds no worker: beat delivers every 15 s."""


@dataclass(frozen=True, slots=True)
class MessageStatus:
    """A message and what became of it. ``mark`` is the kind of its mark and the word; ``open`` while that may
    change by itself."""

    message: OutboxMessage
    mark: tuple[str, str]
    sentence: str
    open: bool = False

    @property
    def live(self) -> Live:
        place = [self.message.channel_id, self.message.pk]
        return Live(
            page=f"{reverse('settings-channel', args=place[:1])}?message={self.message.pk}",
            poll=reverse("settings-channel-message", args=place) if self.open else "",
            pace=f"every {5 if self.message.last_problem else 1}s",
        )

    @property
    def sending(self) -> bool:
        """A worker has it for the first time; its next try is only where that one dies."""
        return self.open and self.message.attempts > 0 and not self.message.last_problem

    @property
    def may_try(self) -> bool:
        return self.message.state != Delivery.SENT and (bool(self.message.last_problem) or not self.open)


@dataclass(frozen=True, slots=True)
class ChannelRow:
    channel: Channel
    events: Sequence[str]
    latest: Sequence[MessageStatus]


def rows_of(user: User, now: datetime) -> list[ChannelRow]:
    """The channels that the user manages, with their newest messages; two queries."""
    channels = list(Channel.objects.visible_to(user).with_latest(LATEST)[:MOST_CHANNELS])
    wanted = [pk for channel in channels for pk in vars(channel)["latest"]]
    found = OutboxMessage.objects.in_bulk(wanted)
    rows = []
    for channel in channels:
        latest = [found[pk] for pk in vars(channel)["latest"] if pk in found]
        for message in latest:
            message.channel = channel
        rows.append(
            ChannelRow(channel, events_of(channel), [message_status(message, now) for message in latest])
        )
    return rows


def events_of(channel: Channel) -> list[str]:
    """What it is told of, in words."""
    known = dict(Event.choices)
    return [str(known.get(event, event)) for event in channel.events]


def messages_of(channel: Channel, now: datetime, before: str) -> Page:
    """A page of its messages, newest first; ``before`` is the position that the page before ended at."""
    messages = OutboxMessage.objects.filter(channel=channel).order_by("-created_at", "-pk")
    if position := _position(before):
        at, key = position
        messages = messages.filter(Q(created_at__lt=at) | Q(created_at=at, pk__lt=key))
    found = list(messages[: PAGE_SIZE + 1])
    more, found = len(found) > PAGE_SIZE, found[:PAGE_SIZE]
    for message in found:
        message.channel = channel
    older = f"{found[-1].created_at.isoformat()}~{found[-1].pk}" if more else ""
    return Page([message_status(message, now) for message in found], after=older)


def _position(text: str) -> tuple[datetime, uuid.UUID] | None:
    """Out of a URL; None for anything that is none."""
    moment, _, key = untrusted.query_text(text, 100).partition("~")
    try:
        at = parse_datetime(moment)
        return (at, uuid.UUID(key)) if at is not None and at.tzinfo is not None and at.year > 1 else None
    except (ValueError, OverflowError):
        return None


def message_status(message: OutboxMessage, now: datetime) -> MessageStatus:
    """What became of a message, in a sentence that stands alone."""
    tried = _times(message.attempts)
    if message.state == Delivery.SENT:
        when = times.ago(message.sent_at or message.created_at, now)
        again = f", at attempt {message.attempts}" if message.attempts > 1 else ""
        return MessageStatus(message, (Verdict.PASS, "delivered"), f"Delivered {when}{again}.")
    if message.state == Delivery.FAILED:
        return MessageStatus(
            message, (Verdict.FAIL, "given up"), f"Given up after {tried}. {message.last_problem}"
        )
    if not message.channel.enabled:
        sentence = "The channel is off: it waits until the channel is switched on."
        return MessageStatus(message, ("", "waits"), sentence)
    if message.last_problem:
        following = times.ago(message.next_attempt_at, now)
        following = following if following.startswith("in ") else "now"
        sentence = (
            f"Not delivered by {tried} of {MOST_ATTEMPTS}. {message.last_problem} Next try {following}."
        )
        return MessageStatus(message, (Verdict.INCONCLUSIVE, "not yet"), sentence, open=True)
    if message.attempts:
        return MessageStatus(message, ("", "on its way"), "It is being sent.", open=True)
    late = now - max(message.created_at, message.next_attempt_at) > LONG
    waits = "No worker has taken it yet: see that workers run." if late else "Waits for a worker."
    return MessageStatus(message, ("", "waits"), waits, open=True)


def _times(attempts: int) -> str:
    return f"{attempts} attempt{'' if attempts == 1 else 's'}"
