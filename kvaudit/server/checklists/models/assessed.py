"""Deployments as the checklists see them. `AssessedQuerySet.standings` is the one place where it is computed how
items stand: pages, API, exports and daily counts all ask there, for now and for any past moment.
"""

from __future__ import annotations

from datetime import datetime
from typing import Self

from django.db.models import Q

from kvaudit.server import clock
from kvaudit.server.checklists.matrix import Matrix
from kvaudit.server.checklists.models.facts import Facts
from kvaudit.server.fleet.models import Deployment, DeploymentQuerySet


class AssessedQuerySet(DeploymentQuerySet):
    def existing(self, moment: datetime | None = None) -> Self:
        """Deployments that were known and not retired at a moment (default: now)."""
        when = clock.now() if moment is None else moment
        return self.filter(Q(retired_at=None) | Q(retired_at__gt=when), created_at__lte=when)

    def standings(self, *, moment: datetime | None = None) -> Matrix:
        """How every item stands for these deployments, now or at a past moment. Seven queries, eight
        where an item is only for one mode of serving, however many deployments."""
        when = clock.now() if moment is None else moment
        return Facts(self, moment, when).at(when)

    def standings_between(self, since: datetime, until: datetime) -> tuple[Matrix, Matrix]:
        """How every item stood at two moments, for those of these deployments that existed then: what
        `existing` and `standings` say of each, read once for both."""
        existed = self.filter(Q(retired_at=None) | Q(retired_at__gt=since), created_at__lte=until)
        facts = Facts(existed, since, until)
        return facts.at(since), facts.at(until)


class Assessed(Deployment):
    """A deployment as the checklists see it: the same row, with `standings` to ask."""

    objects = AssessedQuerySet.as_manager()  # type: ignore[misc]

    class Meta:
        proxy = True
        ordering = ("slug",)
