"""Saved views, and which of them a user finds."""

from __future__ import annotations

import uuid
from typing import Self

from django.conf import settings
from django.db import models

from kvaudit.server import clock
from kvaudit.server.accounts.models import Team, User


class SavedViewQuerySet(models.QuerySet["SavedView"]):
    def of(self, user: User, page: str) -> Self:
        """The user's own views of a page, by name."""
        return self.filter(user=user, page=page).order_by("name")

    def listed_for(self, user: User, page: str) -> Self:
        """The user's own views of a page, then those that others share with a team the user sees; by name."""
        others = models.Case(models.When(user=user, then=False), default=True)
        listed = self.filter(
            models.Q(user=user) | models.Q(team__in=Team.objects.visible_to(user)), page=page
        )
        return listed.select_related("user", "team").order_by(others, "name", "pk")


class SavedView(models.Model):
    """A query string under a name. Its owner lists it, and so do the members of ``team`` where it is shared with
    one; whoever has its address may open it, and sees what they may see."""

    key = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    team = models.ForeignKey(Team, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    page = models.CharField(max_length=20)  # the name of the page's address: one of `views_kept.PAGES`
    name = models.CharField(max_length=80)
    query = models.TextField(max_length=2_000, blank=True)
    created_at = models.DateTimeField(default=clock.now)

    objects = SavedViewQuerySet.as_manager()

    class Meta:
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(fields=("user", "page", "name"), name="inquiries_view_one_name"),
        )

    def __str__(self) -> str:
        return self.name
