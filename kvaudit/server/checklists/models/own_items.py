"""A team's own items. A change closes one version and opens the next."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Self

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from kvaudit.server.accounts.models import Team, User
from kvaudit.server.checklists.items import DISAGGREGATED, UNIFIED, Item, Standard
from kvaudit.server.fleet.intervals import Interval, IntervalQuerySet, not_backwards

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser


class OwnItemQuerySet(IntervalQuerySet["OwnItem"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        """Items of the teams that the user sees."""
        return self.filter(team__in=Team.objects.visible_to(user))


class OwnItem(Interval):
    """One version of an item that a team holds its own deployments to, beside the shipped ones.

    ``series`` names the item through its versions; without ``checks`` it can only be attested.
    """

    series = models.UUIDField(default=uuid.uuid4, editable=False)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="own_items")
    key = models.CharField(max_length=12)
    title = models.CharField(max_length=120)
    rule = models.TextField(max_length=2_000)
    checks = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    attestable = models.BooleanField(default=True)
    applies_to = models.CharField(
        max_length=13, blank=True, choices=[(DISAGGREGATED, "disaggregated"), (UNIFIED, "unified")]
    )
    remedy = models.TextField(max_length=2_000, blank=True)
    standard = models.CharField(max_length=100, blank=True)
    standard_version = models.CharField(max_length=40, blank=True)
    requirement = models.CharField(max_length=100, blank=True)
    requirement_text = models.TextField(max_length=4_000, blank=True)
    version = models.PositiveIntegerField(default=1)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )

    objects = OwnItemQuerySet.as_manager()

    class Meta:
        ordering = ("team", "key", "valid_from")
        constraints = (
            models.UniqueConstraint(
                fields=("team", "key"), condition=Q(valid_to=None), name="checklists_item_one_open_key"
            ),
            models.UniqueConstraint(
                fields=("series",), condition=Q(valid_to=None), name="checklists_item_one_open_version"
            ),
            not_backwards("checklists_item_interval"),
        )

    def __str__(self) -> str:
        return f"{self.key} {self.title}"

    def as_item(self) -> Item:
        """The same shape as a shipped item."""
        cited = Standard(self.standard, self.standard_version, self.requirement, self.requirement_text)
        return Item(
            key=self.key,
            title=self.title,
            rule=self.rule,
            checks=tuple(self.checks),
            remedy=self.remedy,
            attestable=self.attestable,
            applies_to=self.applies_to,
            standard=cited if self.standard else None,
            team_id=self.team_id,
            checklist="own",
            version=self.version,
        )
