"""What a kind of channel says of itself, and what it is given to send."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar


class BadChannel(ValueError):
    """An address, a secret or an event that cannot be used; the text is a sentence."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A message and where it goes. ``id`` tells repetitions apart; ``shown`` is what may be shown of the address."""

    id: str
    event: str
    subject: str
    created_at: datetime
    payload: dict[str, Any]
    shown: str
    address: str = field(repr=False)
    secret: str = field(repr=False)


class Kind(ABC):
    """One kind of channel. Form, page, service and delivery ask it; none of them knows a kind by its name."""

    id: ClassVar[str]
    """What a channel's row holds: a word that stays, at most 30 characters."""
    label: ClassVar[str]
    several: ClassVar[str]
    """For a sentence: webhooks."""
    order: ClassVar[int]
    """Place in the form."""
    address_help: ClassVar[str]
    """What its address looks like: part of a sentence, and of a list of these."""
    secret_help: ClassVar[str]
    """What its secret is for: one sentence or two."""
    signature: ClassVar[str] = ""
    """How its messages are signed; "" where they are not. Of a kind that signs, a secret is drawn if none is given."""

    @abstractmethod
    def shown(self, address: str) -> str:
        """What may be shown of an address; the rest of it is a secret. Raises `BadChannel` when it cannot be used."""

    @abstractmethod
    def origins(self, address: str) -> frozenset[str]:
        """The origins (`kvaudit.auditor.transport.origin_of`) that its secret may be sent to; none for no URL."""

    @abstractmethod
    def send(self, letters: Sequence[Letter]) -> list[str]:
        """Send all of them; a problem for each, "" where it was delivered. A problem names no secret. Never raises for
        what a receiver does."""

    def secret(self, given: str) -> str:
        """The secret to keep. Raises `BadChannel` for one that is of no use."""
        if not self.signature:
            if given:
                raise BadChannel(f"{self.label} is not signed: leave the secret empty.")
            return ""
        return given or secrets.token_urlsafe(32)
