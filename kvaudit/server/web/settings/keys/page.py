"""Tenants' keys of every deployment: whether one is set, when and by whom; and what cannot run without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.db.models import Count, Q

from kvaudit.auditor import checks
from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import User
from kvaudit.server.fleet.models import Deployment, Node, Tenant, with_nodes
from kvaudit.server.web.kit import listing
from kvaudit.server.web.kit.listing import Page, flag, keyset_page, position, text


@dataclass(frozen=True, slots=True)
class KeyRow:
    """``silent``: checks that cannot ask without another tenant's key, so they are inconclusive."""

    deployment: Deployment
    tenants: Sequence[Tenant]
    keyed: int
    nodes: int
    keyed_nodes: int
    silent: Sequence[str]
    may_set: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters(listing.Filters):
    """``missing`` leaves the deployments for which a key is missing."""

    q: str = text()
    missing: bool = flag()
    after: str = position()
    before: str = position()


def listed(reader: User, filters: Filters) -> Page:
    """Deployments that the reader sees, by name; three queries, however many there are."""
    current = Q(tenants__valid_to=None) & ~Q(tenants__credential_sealed="")
    rows = Deployment.objects.visible_to(reader).active()
    if filters.q:
        rows = rows.filter(Q(slug__icontains=filters.q) | Q(team__slug__icontains=filters.q))
    if filters.missing:
        rows = rows.annotate(keyed=Count("tenants", filter=current)).filter(keyed__lt=most_needed())
    found = keyset_page(with_nodes(rows), "slug", filters)
    return replace(found, rows=[_row(row, reader) for row in found.rows])


def most_needed() -> int:
    """Tenants with a key that let every check ask."""
    return max((checks.keys_needed(name) for name in checks.ACTIVE), default=0)


def _row(deployment: Deployment, reader: User) -> KeyRow:
    tenants: Sequence[Tenant] = vars(deployment)["current_tenants"]
    nodes: Sequence[Node] = vars(deployment)["current_nodes"]
    keyed = sum(tenant.has_credential for tenant in tenants)
    return KeyRow(
        deployment=deployment,
        tenants=tenants,
        keyed=keyed,
        nodes=len(nodes),
        keyed_nodes=sum(node.has_headers for node in nodes),
        silent=[name for name in checks.ACTIVE if checks.keys_needed(name) > keyed],
        may_set=can(reader, "edit_fleet", deployment.team_id),
    )
