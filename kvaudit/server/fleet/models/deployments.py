"""Deployments, which rows of them a user may see, and the same for whatever belongs to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q

from kvaudit.server import clock
from kvaudit.server.accounts.access import access_of
from kvaudit.server.accounts.models import ApiToken, Team, User
from kvaudit.server.accounts.roles import ABILITIES

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser


Row = TypeVar("Row", bound=models.Model, covariant=True)


class DeploymentQuerySet(models.QuerySet["Deployment"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        """Deployments of the user's teams; all for whoever holds a fleet-wide role."""
        return self.where_can(user, "view")

    def where_can(self, user: User | AnonymousUser, ability: str) -> Self:
        """Deployments for which the user has the ability (a key of `ABILITIES`)."""
        access = access_of(user)
        if access.fleet_role is not None and access.fleet_role.includes(ABILITIES[ability]):
            return self.all()
        return self.filter(team_id__in=access.team_ids_where(ability))

    def visible_to_token(self, token: ApiToken) -> Self:
        """What the token's owner sees now, narrowed by the token's team and deployments."""
        seen = self.visible_to(token.owner)
        if token.team_id is not None:
            seen = seen.filter(team_id=token.team_id)
        if token.deployments:
            seen = seen.filter(slug__in=token.deployments)
        return seen

    def active(self) -> Self:
        """Not retired."""
        return self.filter(retired_at=None)


class Deployment(models.Model):
    """A model as it is offered to tenants: the nodes that serve it and the limits declared for it.

    ``context``, ``edge_limit`` and ``disagg_buffer`` (what one prefill-to-decode transfer holds) are
    tokens, null where not declared. ``windows`` is the list of
    the fleet file; ``conditions`` maps advisory conditions to what the operator declared, and
    ``components`` connectors and stores to their versions. ``entry_sets_salts``: the entry overwrites
    the cache salts that clients send. ``session`` describes a session API (`fleet.session_plans`), {} for
    none; ``session_author`` is the person who brought it in last and ``session_set_by`` their name, or the
    command's. It is asked only under a `SessionApproval` of exactly this content.
    """

    slug = models.SlugField(max_length=100, unique=True)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="deployments")
    owner = models.CharField(max_length=300, blank=True)
    contact = models.CharField(max_length=300, blank=True)
    engine = models.CharField(max_length=40, default="auto")
    entry = models.CharField(max_length=500, blank=True)  # the URL that tenants use
    entry_sets_salts = models.BooleanField(default=False)
    model = models.CharField(max_length=300, blank=True)
    context = models.BigIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    edge_limit = models.BigIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    disagg_buffer = models.BigIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    headroom = models.FloatField(default=1.25, validators=[MinValueValidator(1.0)])
    conditions = models.JSONField(default=dict, blank=True)
    components = models.JSONField(default=dict, blank=True)
    windows = models.JSONField(default=list, blank=True)
    session = models.JSONField(default=dict, blank=True)
    session_author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", null=True, blank=True
    )
    session_set_by = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(default=clock.now)
    retired_at = models.DateTimeField(null=True, blank=True)

    objects = DeploymentQuerySet.as_manager()

    class Meta:
        ordering = ("slug",)
        constraints = (
            models.CheckConstraint(condition=Q(headroom__gte=1.0), name="fleet_deployment_headroom"),
        )

    def __str__(self) -> str:
        return self.slug


class OfDeployment(models.QuerySet[Row]):
    """Rows that belong to a deployment: whoever sees it sees them."""

    deployment_is = "deployment"
    """The path from a row to its deployment."""

    def visible_to(self, user: User | AnonymousUser) -> Self:
        if access_of(user).everywhere("view"):
            return self.all()
        return self.filter(**{f"{self.deployment_is}__in": Deployment.objects.visible_to(user)})

    def before(self, key: int | None) -> Self:
        """Newest first, continuing below ``key`` (the id of the last row of the page before)."""
        rows = self.order_by("-id")
        return rows if key is None else rows.filter(id__lt=key)
