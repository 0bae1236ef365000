"""Reads of checklists. `AssessedQuerySet.standings` is the one place where it is computed how items
stand: pages, API, exports and daily counts all ask there, for now and for any past moment."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Self, TypeVar

from django.db import models
from django.db.models import Q

from kvaudit.server import clock
from kvaudit.server.accounts.access import access_of
from kvaudit.server.audits.state.bulk_reads import among
from kvaudit.server.checklists.matrix import Matrix
from kvaudit.server.fleet.intervals import IntervalQuerySet
from kvaudit.server.fleet.querysets import DeploymentQuerySet

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser

    from kvaudit.server.accounts.models import User
    from kvaudit.server.checklists.models import Attestation, DailyCount, OwnItem, Waiver  # noqa: F401
    from kvaudit.server.fleet.models import Deployment

Scoped = TypeVar("Scoped", bound=models.Model, covariant=True)


class AssessedQuerySet(DeploymentQuerySet):
    def existing(self, moment: datetime | None = None) -> Self:
        """Deployments that were known and not retired at a moment (default: now)."""
        when = clock.now() if moment is None else moment
        return self.filter(Q(retired_at=None) | Q(retired_at__gt=when), created_at__lte=when)

    def standings(self, *, moment: datetime | None = None) -> Matrix:
        """How every item stands for these deployments, now or at a past moment. Seven queries, eight
        where an item is only for one mode of serving, however many deployments."""
        from kvaudit.server.checklists.facts import Facts

        when = clock.now() if moment is None else moment
        return Facts(self, moment, when).at(when)

    def standings_between(self, since: datetime, until: datetime) -> tuple[Matrix, Matrix]:
        """How every item stood at two moments, for those of these deployments that existed then: what
        `existing` and `standings` say of each, read once for both."""
        from kvaudit.server.checklists.facts import Facts

        existed = self.filter(Q(retired_at=None) | Q(retired_at__gt=since), created_at__lte=until)
        facts = Facts(existed, since, until)
        return facts.at(since), facts.at(until)


class OwnItemQuerySet(IntervalQuerySet["OwnItem"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        """Items of the teams that the user sees."""
        from kvaudit.server.accounts.models import Team

        return self.filter(team__in=Team.objects.visible_to(user))


class ScopedQuerySet(models.QuerySet[Scoped]):
    """Rows of one deployment, or of all deployments of a team."""

    def visible_to(self, user: User | AnonymousUser) -> Self:
        """Rows whose deployment or team the user sees."""
        from kvaudit.server.accounts.models import Team
        from kvaudit.server.fleet.models import Deployment

        if access_of(user).everywhere("view"):
            return self.all()
        return self.filter(
            Q(deployment__in=Deployment.objects.visible_to(user)) | Q(team__in=Team.objects.visible_to(user))
        )

    def concerning(self, deployments: Iterable[int], teams: Iterable[int]) -> Self:
        return self.filter(among("deployment_id", deployments) | among("team_id", teams))

    def of(self, deployment: Deployment, item: str) -> Self:
        """Everything ever said about this item of this deployment, its team's included; newest first."""
        return self.filter(Q(deployment=deployment) | Q(team=deployment.team_id), item=item)

    def in_force(self, moment: datetime | None = None) -> Self:
        """Those that held at a moment (default: now): begun, not closed, not expired."""
        when = clock.now() if moment is None else moment
        return self.in_force_between(when, when)

    def in_force_between(self, since: datetime, until: datetime) -> Self:
        """Those that held at some moment of a span, both ends included."""
        open_then = Q(valid_to=None) | Q(valid_to__gt=since)
        return self.filter(open_then, valid_from__lte=until, expires_at__gt=since)

    def ending(self, now: datetime, before: datetime) -> Self:
        """In force now and over before ``before``; soonest first."""
        return self.in_force(now).filter(expires_at__lte=before).order_by("expires_at", "pk")


class AttestationQuerySet(ScopedQuerySet["Attestation"]):
    pass


class WaiverQuerySet(ScopedQuerySet["Waiver"]):
    def pending(self, moment: datetime | None = None) -> Self:
        """Asked for, not decided, and not over before it began."""
        when = clock.now() if moment is None else moment
        return self.filter(decision="pending", expires_at__gt=when)

    def to_decide_by(self, user: User, moment: datetime | None = None) -> Self:
        """Those that wait for a second person whom this user may be."""
        from kvaudit.server.accounts.models import Team
        from kvaudit.server.fleet.models import Deployment

        mine = Q(deployment__in=Deployment.objects.where_can(user, "approve"))
        mine |= Q(team__in=Team.objects.where_can(user, "approve"))
        return self.pending(moment).filter(mine).exclude(requester=user)


class DailyCountQuerySet(models.QuerySet["DailyCount"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        from kvaudit.server.accounts.models import Team

        return self.filter(team__in=Team.objects.visible_to(user))
