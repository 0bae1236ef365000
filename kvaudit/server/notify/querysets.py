"""Reads of channels and the outbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from django.contrib.postgres.expressions import ArraySubquery
from django.db import models
from django.db.models import OuterRef, Q
from django.db.models.functions import Now

from kvaudit.server.accounts.access import access_of

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser

    from kvaudit.server.accounts.models import Team, User
    from kvaudit.server.notify.models import Channel, OutboxMessage  # noqa: F401


class ChannelQuerySet(models.QuerySet["Channel"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        """Channels of the teams in which the user manages channels; all for an admin."""
        access = access_of(user)
        if access.everywhere("manage_channels"):
            return self.all()
        return self.filter(team_id__in=access.team_ids_where("manage_channels"))

    def hearing(self, event: str, team: Team | None) -> Self:
        """Enabled channels that are told of this event of a deployment of this team; None: of one that concerns
        every team."""
        concerned = Q() if team is None else Q(team=None) | Q(team=team)
        return self.filter(concerned, enabled=True, events__contains=[event])

    def with_latest(self, count: int) -> Self:
        """Team joined, and the keys of the ``count`` newest messages of each as ``latest`` (a list)."""
        from kvaudit.server.notify.models import OutboxMessage

        newest = OutboxMessage.objects.filter(channel=OuterRef("pk")).order_by("-created_at", "-pk")
        return self.select_related("team").annotate(latest=ArraySubquery(newest.values("pk")[:count]))


class OutboxQuerySet(models.QuerySet["OutboxMessage"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        from kvaudit.server.notify.models import Channel

        return self.filter(channel__in=Channel.objects.visible_to(user))

    def due(self) -> Self:
        """Waiting, and to be tried now, by the clock of the database; oldest first."""
        return self.filter(state="pending", next_attempt_at__lte=Now()).order_by("next_attempt_at")
