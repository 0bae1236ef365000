"""Users, teams, memberships and API tokens."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser, Group
from django.contrib.postgres.fields import ArrayField
from django.db import models

from kvaudit.server import clock
from kvaudit.server.accounts.querysets import ApiTokenQuerySet, SessionQuerySet, TeamQuerySet
from kvaudit.server.accounts.roles import Role


class User(AbstractUser):
    """A person. ``zone`` is the IANA time zone in which pages show times."""

    zone = models.CharField(max_length=64, default="UTC")
    must_change_password = models.BooleanField(
        default=False, help_text="Set for one-time passwords; pages ask for a new one first."
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


class TokenScope(models.TextChoices):
    READ = "read", "Read results"
    GATE = "gate", "Ask the gate"


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
