"""Reads of the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

from kvaudit.server.accounts.access import can

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser

    from kvaudit.server.accounts.models import User
    from kvaudit.server.ledger.models import Entry  # noqa: F401


class EntryQuerySet(models.QuerySet["Entry"]):
    def visible_to(self, user: User | AnonymousUser) -> EntryQuerySet:
        """Everything for a fleet-wide auditor and above; nothing for anybody else, since entries
        of all teams are chained together."""
        return self.all() if can(user, "view_ledger") else self.none()

    def about(self, subject: str) -> EntryQuerySet:
        return self.filter(subject=subject)
