"""Limits how long and how large one request may get."""

from __future__ import annotations

from dataclasses import dataclass

MAX_BODY = 8 * 2**20
"""Bytes of one body after decompression, unless a request raises it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and bytes of one request. ``total`` covers everything from the look-up to the last byte."""

    total: float = 6.0
    connect: float = 3.0
    read: float = 5.0
    body: int = MAX_BODY


USUAL = Limits()
"""For the reads of an audit; active checks give their own."""
