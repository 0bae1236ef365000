"""Computes the hash that binds an entry to the one before it. Pure."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime


def entry_hash(
    *, sequence: int, at: datetime, actor: str, kind: str, subject: str, digest: str, previous: str
) -> str:
    """SHA-256 (hex) over the entry's fields as a JSON array, in this order, time in UTC microseconds."""
    moment = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    fields = [sequence, moment, actor, kind, subject, digest, previous]
    return hashlib.sha256(json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode()).hexdigest()


def digest_of(value: object) -> str:
    """SHA-256 (hex) of a plain JSON value in canonical form (sorted keys, no spaces)."""
    body = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
    return hashlib.sha256(body.encode()).hexdigest()
