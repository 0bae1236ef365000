"""Checks the headers that we send before anything leaves, and makes strangers' text fit for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvaudit.auditor.transport.errors import BadHeader

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
OPEN_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent", "host", "x-request-id"})
"""Headers whose values are no secrets."""


def check_headers(headers: Iterable[tuple[str, str]]) -> None:
    """`BadHeader` for names and values that cannot be sent; the value is never repeated."""
    for name, value in headers:
        if not _TOKEN.fullmatch(name):
            raise BadHeader(f"The header name {name[:60]!r} is not valid.")
        if any((ord(char) < 32 and char != "\t") or ord(char) == 127 for char in value):
            raise BadHeader(
                f"The value of header {name} contains a line break or control character; "
                "a key file often ends in a newline: remove it."
            )
        if not value.isascii():
            raise BadHeader(f"The value of header {name} contains characters outside ASCII.")
        if name.lower() in ("host", "content-length", "transfer-encoding", "connection"):
            raise BadHeader(f"The header {name} is set by kvaudit itself and cannot be given.")


def printable(text: str) -> str:
    """At most 200 characters of a stranger's text, without control characters for the terminal."""
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in text[:200])


def secrets_of(headers: Iterable[tuple[str, str]]) -> Iterable[str]:
    """The secret parts of these headers: each whole value, and its last word (``Bearer <key>``)."""
    for name, value in headers:
        if name.lower() not in OPEN_HEADERS:
            yield value.strip()
            yield value.strip().rpartition(" ")[2]
