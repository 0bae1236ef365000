"""Tells where a request comes from."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest

from kvaudit.server.accounts.ip_addresses import bucket_of


def bucket(request: HttpRequest) -> str:
    """Of the peer; behind a proxy that is trusted, of whom that proxy names last: what stands before it can be
    invented."""
    forwarded: str = request.META.get("HTTP_X_FORWARDED_FOR", "")
    if settings.SECURE_PROXY_SSL_HEADER and forwarded:
        return bucket_of(forwarded.rpartition(",")[2])
    return bucket_of(str(request.META.get("REMOTE_ADDR", "")))
