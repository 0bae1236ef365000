"""How long somebody's word may count; each is a setting of the same name."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings


def longest_waiver() -> timedelta:
    """A waiver ends by itself after this at the latest."""
    return timedelta(days=float(getattr(settings, "WAIVER_LONGEST_DAYS", 90)))


def longest_attestation() -> timedelta:
    return timedelta(days=float(getattr(settings, "ATTESTATION_LONGEST_DAYS", 366)))


def warning() -> timedelta:
    """How long before a waiver or an attestation ends somebody is told."""
    return timedelta(days=float(getattr(settings, "EXPIRY_WARNING_DAYS", 14)))


LARGEST_EVIDENCE = 5_000_000
"""Bytes of a file that is attached to an attestation."""
