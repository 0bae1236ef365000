"""Delivers the outbox: claims messages, sends them, notes what became of them. No transaction is open while
anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from kvaudit.server.accounts.sealing import SealBroken
from kvaudit.server.notify.channels import BadChannel, Letter, kind_of
from kvaudit.server.notify.models import Delivery, OutboxMessage
from kvaudit.server.notify.services import opened

BATCH = 20
MOST_ATTEMPTS = 12
"""With the back-off below a receiver may be away for about 14 hours."""
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=30), timedelta(hours=6)
CLAIM = timedelta(minutes=5)
"""A claimed message is left alone this long; longer than sending a batch can take."""


def deliver_due() -> int:
    """Send what is due, a batch at a time, until nothing is; returns how many were sent."""
    sent = 0
    while messages := claim(BATCH):
        problems = _send_all(messages)
        for message, problem in zip(messages, problems, strict=True):
            note(message, problem)
        sent += problems.count("")
    return sent


@transaction.atomic
def claim(limit: int) -> list[OutboxMessage]:
    """Take due messages of enabled channels; nobody else gets them for `CLAIM`."""
    rows = list(
        OutboxMessage.objects.due()
        .filter(channel__enabled=True)
        .select_for_update(skip_locked=True, of=("self",))
        .select_related("channel", "channel__team")[:limit]
    )
    # Counted before it is sent: a worker that dies over it has tried, and a message that kills workers ends.
    OutboxMessage.objects.filter(pk__in=[row.pk for row in rows]).update(
        attempts=F("attempts") + 1, next_attempt_at=Now() + CLAIM
    )
    for row in rows:
        row.attempts += 1
    return rows


def note(message: OutboxMessage, problem: str) -> None:
    """Write down how an attempt ended, unless another worker has claimed the message since."""
    mine = OutboxMessage.objects.filter(
        pk=message.pk, attempts=message.attempts, state=Delivery.PENDING.value
    )
    if not problem:
        mine.update(state=Delivery.SENT.value, sent_at=Now(), last_problem="")
    elif message.attempts >= MOST_ATTEMPTS:
        mine.update(state=Delivery.FAILED.value, last_problem=problem[:500])
    else:
        mine.update(next_attempt_at=Now() + pause_after(message.attempts), last_problem=problem[:500])


def pause_after(attempts: int) -> timedelta:
    """30 s, 1 min, 2 min, ... up to 6 h."""
    doublings = min(attempts - 1, 20)
    return min(FIRST_PAUSE * (1 << doublings), LONGEST_PAUSE)


def _send_all(messages: Sequence[OutboxMessage]) -> list[str]:
    """A problem per message, "" where it was delivered. Messages of one kind go out together."""
    problems: dict[UUID, str] = {}
    letters: dict[str, list[tuple[UUID, Letter]]] = {}
    for message in messages:
        try:
            letter = _letter(message)
        except (SealBroken, BadChannel) as problem:
            problems[message.pk] = str(problem)
        else:
            letters.setdefault(message.channel.kind, []).append((message.pk, letter))
    for kind, together in letters.items():
        answered = kind_of(kind).send([letter for _, letter in together])
        problems.update(zip((key for key, _ in together), answered, strict=True))
    return [problems[message.pk] for message in messages]


def _letter(message: OutboxMessage) -> Letter:
    address, secret = opened(message.channel)
    return Letter(
        id=str(message.pk),
        event=message.event,
        subject=message.subject,
        created_at=message.created_at,
        payload=message.payload if isinstance(message.payload, dict) else {},
        shown=message.channel.address_shown,
        address=address,
        secret=secret,
    )
