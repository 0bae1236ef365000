"""Entries of the ledger, and walks along their chain."""

from __future__ import annotations

from kvaudit.server.ledger.models.entries import Entry, EntryQuerySet
from kvaudit.server.ledger.models.verifications import Verification

__all__ = (
    "Entry",
    "EntryQuerySet",
    "Verification",
)
