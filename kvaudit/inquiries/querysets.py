"""Reads of saved views and request logs, and which rows a user may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from django.db import models

from kvaudit.audits.querysets import OfDeployment

if TYPE_CHECKING:
    from kvaudit.accounts.models import User
    from kvaudit.fleet.models import Deployment
    from kvaudit.inquiries.models import LogImport, RequestLog, SavedView  # noqa: F401


class SavedViewQuerySet(models.QuerySet["SavedView"]):
    def of(self, user: User, page: str) -> Self:
        """The user's own views of a page, by name."""
        return self.filter(user=user, page=page).order_by("name")


class RequestLogQuerySet(OfDeployment["RequestLog"]):
    def of(self, deployment: Deployment) -> Self:
        """Newest first."""
        return self.filter(deployment=deployment).order_by("-id")


class LogImportQuerySet(OfDeployment["LogImport"]):
    def of(self, deployment: Deployment) -> Self:
        """Newest first."""
        return self.filter(deployment=deployment).order_by("-id")
