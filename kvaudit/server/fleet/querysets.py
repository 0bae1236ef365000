"""Reads of the fleet, and which rows a user may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

from django.db import models
from django.db.models import Prefetch, Q

from kvaudit.server.accounts.access import access_of
from kvaudit.server.accounts.roles import ABILITIES
from kvaudit.server.fleet.intervals import IntervalQuerySet

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser

    from kvaudit.server.accounts.models import ApiToken, User
    from kvaudit.server.fleet.models import (  # noqa: F401
        Consent,
        Deployment,
        FingerprintChange,
        Node,
        NodeSnapshot,
        Pause,
        Pin,
        SessionApproval,
        Tenant,
    )

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

    def with_nodes(self) -> Self:
        """Team joined; current nodes as ``current_nodes``, current tenants as ``current_tenants``."""
        from kvaudit.server.fleet.models import Node, Tenant

        return self.select_related("team").prefetch_related(
            Prefetch("nodes", Node.objects.current(), to_attr="current_nodes"),
            Prefetch("tenants", Tenant.objects.current(), to_attr="current_tenants"),
        )


class OfDeployment(models.QuerySet[Row]):
    """Rows that belong to a deployment: whoever sees it sees them."""

    deployment_is = "deployment"
    """The path from a row to its deployment."""

    def visible_to(self, user: User | AnonymousUser) -> Self:
        from kvaudit.server.fleet.models import Deployment

        if access_of(user).everywhere("view"):
            return self.all()
        return self.filter(**{f"{self.deployment_is}__in": Deployment.objects.visible_to(user)})

    def before(self, key: int | None) -> Self:
        """Newest first, continuing below ``key`` (the id of the last row of the page before)."""
        rows = self.order_by("-id")
        return rows if key is None else rows.filter(id__lt=key)


class NodeQuerySet(OfDeployment["Node"], IntervalQuerySet["Node"]):  # type: ignore[override] # both have as_manager
    def with_snapshot(self) -> Self:
        """The current reading of each as ``current_snapshots`` (a list of none or one)."""
        from kvaudit.server.fleet.models import NodeSnapshot

        return self.prefetch_related(
            Prefetch("snapshots", NodeSnapshot.objects.filter(current=True), to_attr="current_snapshots")
        )


class TenantQuerySet(OfDeployment["Tenant"], IntervalQuerySet["Tenant"]):  # type: ignore[override]
    pass


class PinQuerySet(IntervalQuerySet["Pin"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        """Pins of visible deployments, and the fleet-wide ones, which concern everybody."""
        from kvaudit.server.fleet.models import Deployment

        return self.filter(Q(deployment=None) | Q(deployment__in=Deployment.objects.visible_to(user)))

    def applying_to(self, deployment: Deployment) -> Self:
        return self.filter(Q(deployment=None) | Q(deployment=deployment))


class ConsentQuerySet(IntervalQuerySet["Consent"]):
    pass


class SessionApprovalQuerySet(IntervalQuerySet["SessionApproval"]):
    pass


class PauseQuerySet(IntervalQuerySet["Pause"]):
    def applying_to(self, deployment: Deployment) -> Self:
        """Pauses of this deployment and of the whole fleet."""
        return self.filter(Q(deployment=None) | Q(deployment=deployment))


class NodeSnapshotQuerySet(OfDeployment["NodeSnapshot"]):
    deployment_is = "node__deployment"


class FingerprintChangeQuerySet(OfDeployment["FingerprintChange"]):
    def significant(self) -> Self:
        """Those that expire evidence."""
        return self.filter(significant=True)
