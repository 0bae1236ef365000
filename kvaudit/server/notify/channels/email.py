"""A plain text letter through the mail server of the environment."""

from __future__ import annotations

import smtplib
from collections.abc import Sequence
from typing import ClassVar

import orjson
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email

from kvaudit.server.notify.channels._kind import BadChannel, Kind, Letter


class Email(Kind):
    id: ClassVar[str] = "email"
    label: ClassVar[str] = "E-mail"
    several: ClassVar[str] = "e-mail"
    order: ClassVar[int] = 2
    address_help: ClassVar[str] = "name@host for e-mail"
    secret_help: ClassVar[str] = "E-mail has none."

    def shown(self, address: str) -> str:
        """The address as it is."""
        text = address.strip()
        try:
            validate_email(text)
        except ValidationError:
            raise BadChannel(f"{text[:100]!r} is no e-mail address.") from None
        return text

    def origins(self, address: str) -> frozenset[str]:
        return frozenset()

    def send(self, letters: Sequence[Letter]) -> list[str]:
        return [_send(letter) for letter in letters]


def _send(letter: Letter) -> str:
    try:
        sent = EmailMessage(
            subject=f"[kvaudit] {letter.subject}",
            body=_text(letter),
            from_email=settings.DEFAULT_FROM_EMAIL,
            to=[letter.address],
            headers={"X-KVAudit-Delivery": letter.id, "Auto-Submitted": "auto-generated"},
        ).send()
    except (smtplib.SMTPException, OSError, ValueError) as problem:
        return f"The mail server {settings.EMAIL_HOST} did not take the message: {problem}"
    return "" if sent else f"The mail server {settings.EMAIL_HOST} took no message."


def _text(letter: Letter) -> str:
    """The payload's sentences first, then its other fields, one a line."""
    payload = letter.payload
    sentences = [str(payload[name]) for name in ("summary", "next") if payload.get(name)]
    others = [
        f"{name}: {value if isinstance(value, str | int | float) else orjson.dumps(value).decode()}"
        for name, value in payload.items()
        if name not in ("summary", "next") and value not in (None, "", [], {})
    ]
    return "\n\n".join(part for part in (letter.subject, *sentences, "\n".join(others)) if part) + "\n"


KIND = Email()
