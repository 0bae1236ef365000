"""Reads of accounts, and what a user may see."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser

    from kvaudit.server.accounts.models import ApiToken, Session, Team, User  # noqa: F401


class TeamQuerySet(models.QuerySet["Team"]):
    def visible_to(self, user: User | AnonymousUser) -> TeamQuerySet:
        """Teams of which the user is a member; all for whoever holds a fleet-wide role."""
        from kvaudit.server.accounts.access import access_of

        access = access_of(user)
        if access.fleet_role is not None:
            return self.all()
        return self.filter(pk__in=access.team_roles)

    def where_can(self, user: User | AnonymousUser, ability: str) -> TeamQuerySet:
        """Teams for which the user has the ability (a key of `ABILITIES`)."""
        from kvaudit.server.accounts.access import access_of

        access = access_of(user)
        return (
            self.all() if access.everywhere(ability) else self.filter(pk__in=access.team_ids_where(ability))
        )


def managed_users(user: User | AnonymousUser) -> models.QuerySet[User]:
    """Whose roles the user may see and give: everybody's for an administrator of every team, members' for
    one of some teams."""
    from kvaudit.server.accounts.access import access_of
    from kvaudit.server.accounts.models import User as Users

    access = access_of(user)
    if access.everywhere("manage_accounts"):
        return Users.objects.all()
    teams = access.team_ids_where("manage_accounts")
    return Users.objects.filter(memberships__team__in=teams).distinct()


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def usable(self, at: datetime) -> ApiTokenQuerySet:
        """Not revoked, not expired, owner active."""
        current: Any = models.Q(expires_at=None) | models.Q(expires_at__gt=at)
        return self.filter(current, revoked_at=None, owner__is_active=True)

    def visible_to(self, user: User | AnonymousUser) -> ApiTokenQuerySet:
        """One's own; all for an admin."""
        from kvaudit.server.accounts.access import can

        if can(user, "manage_tokens"):
            return self.all()
        return self.filter(owner_id=user.pk) if user.pk else self.none()


class SessionQuerySet(models.QuerySet["Session"]):
    def lasting(self, at: datetime) -> SessionQuerySet:
        """Neither idle for too long nor begun too long ago."""
        return self.filter(expires_at__gt=at)
