"""Headers that carry keys: how they are made, sealed and opened. Values never leave as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from kvaudit.accounts.sealing import SealBroken, seal, unseal

Headers = tuple[tuple[str, str], ...]

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}\Z")
_RESERVED = frozenset({"host", "content-length", "transfer-encoding", "connection"})
LONGEST_KEY = 8_000


class BadHeaders(ValueError):
    """Headers that cannot be sent; the sentence never repeats a value."""


def bearer(key: str) -> Headers:
    """The usual header for an API key."""
    return (("Authorization", f"Bearer {key.strip()}"),)


def seal_headers(headers: Iterable[tuple[str, str]]) -> str:
    """Checked and encrypted; "" for none. Raises `BadHeaders`."""
    pairs = [_checked(name, value) for name, value in headers]
    return seal(json.dumps(pairs)) if pairs else ""


def open_headers(sealed: str) -> Headers:
    """Raises `SealBroken` when no key fits."""
    return tuple((name, value) for name, value in json.loads(unseal(sealed))) if sealed else ()


def same_headers(sealed: str, headers: Headers) -> bool:
    """Whether what is sealed is this; a seal that cannot be opened counts as different."""
    try:
        return open_headers(sealed) == headers
    except SealBroken:
        return False


def same_origin(first: str, second: str) -> bool:
    """Whether two URLs have scheme, host and port in common. A key is only ever sent to the origin
    it was entered for: otherwise whoever may edit a URL could have the key sent to himself."""
    return _origin(first) == _origin(second)


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").lower(), port


def _checked(name: str, value: str) -> tuple[str, str]:
    if not _NAME.match(name) or name.lower() in _RESERVED:
        raise BadHeaders(
            "A header name is letters, digits and hyphens, and none of those the connection sets."
        )
    if not value or len(value) > LONGEST_KEY or not value.isascii() or not value.isprintable():
        raise BadHeaders(f"The value of {name} must be 1 to {LONGEST_KEY} printable ASCII characters.")
    return name, value
