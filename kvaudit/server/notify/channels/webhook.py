"""A signed POST to any receiver; docs/channels.md says how it checks the signature."""

from __future__ import annotations

from typing import ClassVar

import orjson

from kvaudit.server import clock
from kvaudit.server.notify.channels._kind import Letter
from kvaudit.server.notify.channels._posted import Post, PostedKind
from kvaudit.server.notify.signing import HEADER, sign


class Webhook(PostedKind):
    id: ClassVar[str] = "webhook"
    label: ClassVar[str] = "Webhook"
    several: ClassVar[str] = "webhooks"
    whose: ClassVar[str] = "webhook's"
    order: ClassVar[int] = 1
    address_help: ClassVar[str] = "https://host/path for a webhook"
    secret_help: ClassVar[str] = "Signs a webhook's messages. Empty: one is drawn and shown once."
    signature: ClassVar[str] = "HMAC-SHA256, with its secret"

    def post(self, letter: Letter) -> Post:
        body = orjson.dumps(
            {
                "schema": "kvaudit.message/1",
                "id": letter.id,
                "event": letter.event,
                "subject": letter.subject,
                "created_at": letter.created_at.isoformat(),
                "payload": letter.payload,
            }
        )
        signature = sign(body, letter.secret, int(clock.now().timestamp()))
        return Post(body, {HEADER: signature, "X-KVAudit-Delivery": letter.id})


KIND = Webhook()
