"""Guessing passwords takes time: failed logins are counted by name and address, and by address alone.

The counts are rows, so they hold for every web process and survive a restart (`kvaudit.accounts.throttle`).
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.http import HttpRequest

from kvaudit.accounts import throttle

WINDOW = 300  # seconds after the last failure until it is forgotten
BY_NAME, BY_ADDRESS = 10, 60  # failures; an office shares an address


def is_held_up(request: HttpRequest, name: str) -> bool:
    """Whether so many logins have failed lately that another is not even tried."""
    most = _counters(request, name)
    failed = throttle.failures(most)
    return any(failed[subject] >= limit for subject, limit in most.items())


def note_failure(request: HttpRequest, name: str) -> None:
    for subject in _counters(request, name):
        throttle.count(subject, timedelta(seconds=WINDOW))


def note_success(request: HttpRequest, name: str) -> None:
    """Whoever knows the password starts anew; the address keeps its count."""
    throttle.forget(next(iter(_counters(request, name))))


def _counters(request: HttpRequest, name: str) -> dict[str, int]:
    """What is counted -> how many failures are too many."""
    address = _address(request)
    return {repr(("name", address, name.casefold())): BY_NAME, repr(("address", address)): BY_ADDRESS}


def _address(request: HttpRequest) -> str:
    """The peer; behind a proxy that is trusted, whom that proxy names last: what stands before it can be invented."""
    forwarded: str = request.META.get("HTTP_X_FORWARDED_FOR", "")
    if settings.SECURE_PROXY_SSL_HEADER and forwarded:
        return forwarded.rpartition(",")[2].strip()[:100]
    return str(request.META.get("REMOTE_ADDR", ""))
