"""Reads of saved views and request logs, and which rows a user may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from django.db import models

from kvaudit.server.fleet.querysets import OfDeployment

if TYPE_CHECKING:
    from kvaudit.server.accounts.models import User
    from kvaudit.server.fleet.models import Deployment
    from kvaudit.server.inquiries.models import LogImport, RequestLog, SavedView  # noqa: F401


class SavedViewQuerySet(models.QuerySet["SavedView"]):
    def of(self, user: User, page: str) -> Self:
        """The user's own views of a page, by name."""
        return self.filter(user=user, page=page).order_by("name")

    def listed_for(self, user: User, page: str) -> Self:
        """The user's own views of a page, then those that others share with a team the user sees; by name."""
        from kvaudit.server.accounts.models import Team

        others = models.Case(models.When(user=user, then=False), default=True)
        listed = self.filter(
            models.Q(user=user) | models.Q(team__in=Team.objects.visible_to(user)), page=page
        )
        return listed.select_related("user", "team").order_by(others, "name", "pk")


class RequestLogQuerySet(OfDeployment["RequestLog"]):
    def of(self, deployment: Deployment) -> Self:
        """Newest first."""
        return self.filter(deployment=deployment).order_by("-id")


class LogImportQuerySet(OfDeployment["LogImport"]):
    def of(self, deployment: Deployment) -> Self:
        """Newest first."""
        return self.filter(deployment=deployment).order_by("-id")
