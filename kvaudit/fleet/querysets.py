"""Reads of the fleet, and which rows a user may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from django.db import models
from django.db.models import Prefetch, Q

from kvaudit.accounts.access import access_of
from kvaudit.accounts.roles import ABILITIES
from kvaudit.fleet.intervals import IntervalQuerySet

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser

    from kvaudit.accounts.models import ApiToken, User
    from kvaudit.fleet.models import (  # noqa: F401
        Consent,
        Deployment,
        FingerprintChange,
        Node,
        NodeSnapshot,
        Pause,
        Pin,
        Tenant,
    )


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
        from kvaudit.fleet.models import Node, Tenant

        return self.select_related("team").prefetch_related(
            Prefetch("nodes", Node.objects.current(), to_attr="current_nodes"),
            Prefetch("tenants", Tenant.objects.current(), to_attr="current_tenants"),
        )


class NodeQuerySet(IntervalQuerySet["Node"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        from kvaudit.fleet.models import Deployment

        return self.filter(deployment__in=Deployment.objects.visible_to(user))

    def with_snapshot(self) -> Self:
        """The current reading of each as ``current_snapshots`` (a list of none or one)."""
        from kvaudit.fleet.models import NodeSnapshot

        return self.prefetch_related(
            Prefetch("snapshots", NodeSnapshot.objects.filter(current=True), to_attr="current_snapshots")
        )


class TenantQuerySet(IntervalQuerySet["Tenant"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        from kvaudit.fleet.models import Deployment

        return self.filter(deployment__in=Deployment.objects.visible_to(user))


class PinQuerySet(IntervalQuerySet["Pin"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        """Pins of visible deployments, and the fleet-wide ones, which concern everybody."""
        from kvaudit.fleet.models import Deployment

        return self.filter(Q(deployment=None) | Q(deployment__in=Deployment.objects.visible_to(user)))

    def applying_to(self, deployment: Deployment) -> Self:
        return self.filter(Q(deployment=None) | Q(deployment=deployment))


class ConsentQuerySet(IntervalQuerySet["Consent"]):
    pass


class PauseQuerySet(IntervalQuerySet["Pause"]):
    def applying_to(self, deployment: Deployment) -> Self:
        """Pauses of this deployment and of the whole fleet."""
        return self.filter(Q(deployment=None) | Q(deployment=deployment))


class NodeSnapshotQuerySet(models.QuerySet["NodeSnapshot"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        from kvaudit.fleet.models import Deployment

        return self.filter(node__deployment__in=Deployment.objects.visible_to(user))


class FingerprintChangeQuerySet(models.QuerySet["FingerprintChange"]):
    def visible_to(self, user: User | AnonymousUser) -> Self:
        from kvaudit.fleet.models import Deployment

        return self.filter(deployment__in=Deployment.objects.visible_to(user))

    def significant(self) -> Self:
        """Those that expire evidence."""
        return self.filter(significant=True)
