"""The days' counts that the trend is drawn from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from django.db import models

from kvaudit.server.accounts.models import Team, User
from kvaudit.server.checklists.evaluation import Status

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser


class DailyCountQuerySet(models.QuerySet["DailyCount"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        return self.filter(team__in=Team.objects.visible_to(user))


class DailyCount(models.Model):
    """How many cells of a team's item stood how at the end of a UTC day. Derived: `trends.rebuild`
    makes the rows again out of the intervals, and gets the same."""

    day = models.DateField()
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="+", db_index=False)
    item = models.CharField(max_length=12)
    status = models.CharField(max_length=14, choices=[(each.value, each.value) for each in Status])
    count = models.PositiveIntegerField()

    objects = DailyCountQuerySet.as_manager()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("day", "team", "item", "status"), name="checklists_daily_once"),
        )

    def __str__(self) -> str:
        return f"{self.day} {self.item} {self.status}: {self.count}"
