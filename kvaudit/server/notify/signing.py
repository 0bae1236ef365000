"""Signs webhooks, as their receiver checks it. Pure."""

from __future__ import annotations

import hashlib
import hmac

HEADER = "X-KVAudit-Signature"
TOLERANCE = 300
"""Seconds that a receiver should allow between ``t`` and its own clock."""


def sign(body: bytes, secret: str, at: int) -> str:
    """``t=UNIX,v1=HEX``: HMAC-SHA256 with the channel's secret over ``UNIX.`` and the body's bytes."""
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def holds(header: str, body: bytes, secret: str, now: int) -> bool:
    """Whether a signature header is right and not older (or newer) than `TOLERANCE`."""
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    stamp = parts.get("t", "")
    if not (stamp.isascii() and stamp.isdigit()) or len(stamp) > 12 or abs(now - int(stamp)) > TOLERANCE:
        return False
    return hmac.compare_digest(header.encode(), sign(body, secret, int(stamp)).encode())
