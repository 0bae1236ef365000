"""Delivering the outbox: claim, send, note. No transaction is open while anything is sent."""

from __future__ import annotations

import asyncio
import smtplib
from collections.abc import Sequence
from datetime import timedelta

import orjson
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from kvaudit.auditor.transport import Client, Limits, TransportError
from kvaudit.server import clock
from kvaudit.server.accounts.sealing import SealBroken
from kvaudit.server.notify.channels import BadChannel, opened, split_url
from kvaudit.server.notify.models import ChannelKind, Delivery, OutboxMessage
from kvaudit.server.notify.signing import HEADER, sign

BATCH = 20
MOST_ATTEMPTS = 12
"""With the back-off below a receiver may be away for about 14 hours."""
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=30), timedelta(hours=6)
CLAIM = timedelta(minutes=5)
"""A claimed message is left alone this long; longer than sending a batch can take."""
LIMITS = Limits(total=10.0, connect=3.0, read=10.0, body=65_536)


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
    """A problem per message, "" where it was delivered. Webhooks go out side by side."""
    webhooks = [message for message in messages if message.channel.kind == ChannelKind.WEBHOOK]
    answered = dict(zip((each.pk for each in webhooks), asyncio.run(_post_all(webhooks)), strict=True))
    return [answered[each.pk] if each.pk in answered else _mail(each) for each in messages]


async def _post_all(messages: Sequence[OutboxMessage]) -> list[str]:
    return list(await asyncio.gather(*map(_post, messages)))


async def _post(message: OutboxMessage) -> str:
    try:
        address, secret = opened(message.channel)
        origin, path = split_url(address)
        body = webhook_body(message)
        client = Client(origin, allow={("POST", path)}, redact=[secret], limits=LIMITS)
        headers = (
            (HEADER, sign(body, secret, int(clock.now().timestamp()))),
            ("X-KVAudit-Delivery", str(message.pk)),
        )
        async with client:
            answer = await client.request("POST", path, content=body, headers=headers)
    except (TransportError, SealBroken, BadChannel) as problem:
        return _without_path(str(problem), message)
    if 200 <= answer.status < 300:
        return ""
    return f"{message.channel.address_shown} answered {answer.status}; 2xx means delivered."


def webhook_body(message: OutboxMessage) -> bytes:
    """The JSON that is signed and sent."""
    return orjson.dumps(
        {
            "schema": "kvaudit.message/1",
            "id": str(message.pk),
            "event": message.event,
            "subject": message.subject,
            "created_at": message.created_at.isoformat(),
            "payload": message.payload,
        }
    )


def _mail(message: OutboxMessage) -> str:
    try:
        sent = EmailMessage(
            subject=f"[kvaudit] {message.subject}",
            body=mail_text(message),
            from_email=settings.DEFAULT_FROM_EMAIL,
            to=[opened(message.channel)[0]],
            headers={"X-KVAudit-Delivery": str(message.pk), "Auto-Submitted": "auto-generated"},
        ).send()
    except (smtplib.SMTPException, OSError, SealBroken, ValueError) as problem:
        return f"The mail server {settings.EMAIL_HOST} did not take the message: {problem}"
    return "" if sent else f"The mail server {settings.EMAIL_HOST} took no message."


def mail_text(message: OutboxMessage) -> str:
    """The payload's sentences first, then its other fields, one a line."""
    payload = message.payload if isinstance(message.payload, dict) else {}
    sentences = [str(payload[name]) for name in ("summary", "next") if payload.get(name)]
    others = [
        f"{name}: {value if isinstance(value, str | int | float) else orjson.dumps(value).decode()}"
        for name, value in payload.items()
        if name not in ("summary", "next") and value not in (None, "", [], {})
    ]
    return "\n\n".join(part for part in (message.subject, *sentences, "\n".join(others)) if part) + "\n"


def _without_path(problem: str, message: OutboxMessage) -> str:
    """The path of a webhook is often its password: it is cut out of the transport's sentence."""
    try:
        origin, path = split_url(opened(message.channel)[0])
    except (SealBroken, BadChannel):
        return problem
    whole = problem.replace(origin + path, message.channel.address_shown)
    return whole.replace(path, "/...") if len(path) > 1 else whole
