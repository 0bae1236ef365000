"""Finds the key in a header as people write it, and tells whether two tenants hold the same one.

Telling tenants apart takes two keys: with one, what a tenant gets back of the other is its own, and every
check of isolation would pass by construction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kvaudit.auditor.fleetfile.schema import FleetTenant

Headers = Iterable[tuple[str, str]]

_BEARER = re.compile(r"(?:bearer\s+)+", re.IGNORECASE)
_SCHEME = re.compile(r"(?:(?:bearer|token|basic|apikey|api-key|key)\s+)+", re.IGNORECASE)
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
    """The key of a header's value: without spaces and quotes around it, and the word before it."""
    text = value.strip().strip("'\"").strip()
    start = _SCHEME.match(text)
    return text[start.end() :].strip() if start else text


def bearer_value(key: str) -> str:
    """The value of Authorization for a key, also where the word Bearer was pasted with it."""
    text = key.strip()
    start = _BEARER.match(text)
    return f"Bearer {text[start.end() :] if start else text}"


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


def equal_variables(tenants: Iterable[FleetTenant]) -> str:
    """The sentence that says which tenants are given their key by the same variables; "" for none."""
    return equal_keys(
        (tenant.name, [*tenant.headers_env, *([("", tenant.key_env)] if tenant.key_env else [])])
        for tenant in tenants
    )


def sentence(first: str, second: str) -> str:
    return (
        f"The tenants {first} and {second} have one and the same key: to a server they are one tenant, so "
        "nothing could be told apart. Give each a key of its own."
    )
