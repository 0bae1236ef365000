"""Whether two tenants hold one and the same key. Telling tenants apart takes two: with one key, what one
of them gets back of the other is its own, and every check of isolation would pass by construction."""

from __future__ import annotations

import re
from collections.abc import Iterable

Headers = Iterable[tuple[str, str]]

_SCHEME = re.compile(r"\s*(?:bearer|token|basic|apikey|api-key|key)\s+", re.IGNORECASE)
_NAMES_THE_TENANT = re.compile(
    r"tenant|organi[sz]ation|\borg\b|account|project|customer|workspace|consumer|user|client|team",
    re.IGNORECASE,
)
"""A gateway may take one key for all and be told the tenant in a header beside it."""


def key_of(headers: Headers) -> frozenset[str]:
    """What a server can tell a caller by: the keys without the word before them, however the header is
    called, and the values of headers that name a tenant. Secret: compare it, show nothing of it."""
    found = set()
    for name, value in headers:
        tenant = name.lower() if _NAMES_THE_TENANT.search(name.replace("_", "-")) else ""
        found.add(f"{tenant}\0{value.strip()}" if tenant else bare(value))
    return frozenset(found)


def bare(value: str) -> str:
    """The key of a header's value: without spaces around it, quotes, and the word Bearer."""
    return _SCHEME.sub("", value.strip().strip("'\"").strip(), count=1).strip()


def equal_keys(tenants: Iterable[tuple[str, Headers]]) -> str:
    """The sentence that says which of these (name, headers) hold one key; "" where none do, or no key."""
    first: dict[frozenset[str], str] = {}
    for name, headers in tenants:
        key = key_of(headers)
        if not key:
            continue
        if key in first:
            return sentence(first[key], name)
        first[key] = name
    return ""


def sentence(first: str, second: str) -> str:
    return (
        f"The tenants {first} and {second} have one and the same key: to a server they are one tenant, so "
        "nothing could be told apart. Give each a key of its own."
    )
