"""Users, teams, memberships and API tokens, and what a user may see of them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import AbstractUser, Group
from django.contrib.postgres.fields import ArrayField
from django.db import models

from kvaudit.server import clock
from kvaudit.server.accounts.access import access_of, can
from kvaudit.server.accounts.roles import Role

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser


class User(AbstractUser):
    """A person. ``zone`` is the IANA time zone in which pages show times."""

    zone = models.CharField(max_length=64, default="UTC")
    must_change_password = models.BooleanField(
        default=False, help_text="Set for one-time passwords; pages ask for a new one first."
    )


class TeamQuerySet(models.QuerySet["Team"]):
    def visible_to(self, user: User | AnonymousUser) -> TeamQuerySet:
        """Teams of which the user is a member; all for whoever holds a fleet-wide role."""
        access = access_of(user)
        if access.fleet_role is not None:
            return self.all()
        return self.filter(pk__in=access.team_roles)

    def where_can(self, user: User | AnonymousUser, ability: str) -> TeamQuerySet:
        """Teams for which the user has the ability (a key of `ABILITIES`)."""
        access = access_of(user)
        return (
            self.all() if access.everywhere(ability) else self.filter(pk__in=access.team_ids_where(ability))
        )


class Team(models.Model):
    """The people who answer for some deployments; the unit of row permissions."""

    slug = models.SlugField(max_length=100, unique=True)
    name = models.CharField(max_length=200)

    objects = TeamQuerySet.as_manager()

    class Meta:
        ordering = ("slug",)

    def __str__(self) -> str:
        return self.name or self.slug


class Membership(models.Model):
    """One user's role in one team; the role is one of the five groups of `Role`."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    role = models.ForeignKey(
        Group, on_delete=models.PROTECT, limit_choices_to={"name__in": [role.value for role in Role]}
    )

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("user", "team"), name="accounts_membership_one_role_per_team"),
        )

    def __str__(self) -> str:
        return f"{self.user} in {self.team}"


def managed_users(user: User | AnonymousUser) -> models.QuerySet[User]:
    """Whose roles the user may see and give: everybody's for an administrator of every team, members' for
    one of some teams."""
    access = access_of(user)
    if access.everywhere("manage_accounts"):
        return User.objects.all()
    teams = access.team_ids_where("manage_accounts")
    return User.objects.filter(memberships__team__in=teams).distinct()


class TokenScope(models.TextChoices):
    READ = "read", "Read results"
    GATE = "gate", "Ask the gate"


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def usable(self, at: datetime) -> ApiTokenQuerySet:
        """Not revoked, not expired, owner active."""
        current: Any = models.Q(expires_at=None) | models.Q(expires_at__gt=at)
        return self.filter(current, revoked_at=None, owner__is_active=True)

    def visible_to(self, user: User | AnonymousUser) -> ApiTokenQuerySet:
        """One's own; all for an admin."""
        if can(user, "manage_tokens"):
            return self.all()
        return self.filter(owner_id=user.pk) if user.pk else self.none()


class ApiToken(models.Model):
    """A bearer token. Only its SHA-256 is kept; the token itself is shown once, when made.

    It never sees more than its owner sees now, less when ``team`` or ``deployments`` (slugs)
    narrow it. ``prefix`` is the part that may be shown and logged.
    """

    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16, unique=True)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scopes = ArrayField(models.CharField(max_length=10, choices=TokenScope.choices))
    team = models.ForeignKey(Team, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    deployments = ArrayField(models.CharField(max_length=100), default=list, blank=True)
    created_at = models.DateTimeField(default=clock.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at", "-pk")

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}...)"

    def allows(self, scope: str) -> bool:
        return scope in self.scopes


class SessionQuerySet(models.QuerySet["Session"]):
    def lasting(self, at: datetime) -> SessionQuerySet:
        """Neither idle for too long nor begun too long ago."""
        return self.filter(expires_at__gt=at)


class Session(models.Model):
    """One browser that is logged in. ``key_hash`` is a keyed hash of the cookie (`session_store`);
    ``address`` a bucket (`kvaudit.server.accounts.ip_addresses`)."""

    key_hash = models.CharField(max_length=64, unique=True)
    data = models.TextField()
    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, related_name="sessions")
    created_at = models.DateTimeField(default=clock.now)
    last_used_at = models.DateTimeField(default=clock.now)
    expires_at = models.DateTimeField(db_index=True)
    browser = models.CharField(max_length=60, blank=True)
    address = models.CharField(max_length=60, blank=True)

    objects = SessionQuerySet.as_manager()


class FailedLogins(models.Model):
    """Failures of one kind (a name from an address, or an address) that are remembered until ``until``.
    ``key`` is a keyed hash: people type passwords where the name goes."""

    key = models.CharField(max_length=64, primary_key=True)
    failures = models.PositiveIntegerField()
    until = models.DateTimeField(db_index=True)
