"""Guessing passwords takes time: failed logins are counted by name and address, and by address alone.

The counts live in the memory of one web process: a restart forgets them, and with several processes the limit is
so many times higher. That still leaves a guesser a few thousand tries a day instead of millions.
"""

from __future__ import annotations

import hashlib

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest

WINDOW = 300  # seconds after the last failure until it is forgotten
BY_NAME, BY_ADDRESS = 10, 60  # failures; an office shares an address


def is_held_up(request: HttpRequest, name: str) -> bool:
    """Whether so many logins have failed lately that another is not even tried."""
    return any(cache.get(key, 0) >= most for key, most in _counters(request, name))


def note_failure(request: HttpRequest, name: str) -> None:
    for key, _ in _counters(request, name):
        cache.set(key, cache.get(key, 0) + 1, WINDOW)


def note_success(request: HttpRequest, name: str) -> None:
    """Whoever knows the password starts anew; the address keeps its count."""
    cache.delete(_counters(request, name)[0][0])


def _counters(request: HttpRequest, name: str) -> tuple[tuple[str, int], tuple[str, int]]:
    address = _address(request)
    return (_key("name", address, name.casefold()), BY_NAME), (_key("address", address), BY_ADDRESS)


def _key(*parts: str) -> str:
    return f"login:{hashlib.sha256(repr(parts).encode()).hexdigest()}"


def _address(request: HttpRequest) -> str:
    """The peer; behind a proxy that is trusted, whom that proxy names last: what stands before it can be invented."""
    forwarded: str = request.META.get("HTTP_X_FORWARDED_FOR", "")
    if settings.SECURE_PROXY_SSL_HEADER and forwarded:
        return forwarded.rpartition(",")[2].strip()[:100]
    return str(request.META.get("REMOTE_ADDR", ""))
