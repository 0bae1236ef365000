"""Makes, seals and opens headers that carry keys. Values never leave as text."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable

from kvaudit.auditor.fleetfile.keys import bearer_value
from kvaudit.server.accounts.sealing import Opened, Place, SealBroken, open_sealed, seal, unseal

Headers = tuple[tuple[str, str], ...]

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}\Z")
_RESERVED = frozenset({"host", "content-length", "transfer-encoding", "connection"})
LONGEST_KEY = 8_000


class BadHeaders(ValueError):
    """Headers that cannot be sent; the sentence never repeats a value."""


def bearer(key: str) -> Headers:
    """The usual header for an API key."""
    return (("Authorization", bearer_value(key)),)


def check_headers(headers: Iterable[tuple[str, str]]) -> None:
    """Raises `BadHeaders` for what cannot be sent."""
    for name, value in headers:
        _checked(name, value)


def seal_headers(headers: Iterable[tuple[str, str]], place: Place, origins: Collection[str]) -> str:
    """Checked and encrypted for one row and the origins they were given for; "" for none. Raises
    `BadHeaders`."""
    pairs = [_checked(name, value) for name, value in headers]
    return seal(json.dumps(pairs), place, origins) if pairs else ""


def open_headers(sealed: str, place: Place, *, sent_to: Collection[str]) -> Headers:
    """``sent_to``: the origins about to be asked, none to look only. Raises `SealBroken` when no key or
    row fits, and `SealedForElsewhere` for an origin that they were not given for."""
    if not sealed:
        return ()
    return tuple((name, value) for name, value in json.loads(unseal(sealed, place, sent_to=sent_to)))


def headers_text(headers: Headers) -> str:
    """As `seal_headers` seals them."""
    return json.dumps(headers)


def opened(sealed: str, place: Place) -> Opened | None:
    """What is sealed, and for which origins; None where nothing is, or it cannot be opened."""
    try:
        return open_sealed(sealed, place) if sealed else None
    except SealBroken:
        return None


def _checked(name: str, value: str) -> tuple[str, str]:
    if not _NAME.match(name) or name.lower() in _RESERVED:
        raise BadHeaders(
            "A header name is letters, digits and hyphens, and none of those the connection sets."
        )
    if not value or len(value) > LONGEST_KEY or not value.isascii() or not value.isprintable():
        raise BadHeaders(f"The value of {name} must be 1 to {LONGEST_KEY} printable ASCII characters.")
    return name, value
