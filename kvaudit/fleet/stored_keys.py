"""What can be said of stored keys without showing them: whether they open, for which addresses, and
whether two tenants hold one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kvaudit.accounts.sealed_fields import place_of
from kvaudit.accounts.sealing import SealBroken
from kvaudit.fleet.addresses import origins_of_node, origins_of_tenants
from kvaudit.fleet.credentials import Headers, open_headers
from kvaudit.fleet.models import Deployment, Node, Tenant
from kvaudit.fleetfile.equal_keys import equal_keys


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A tenant's or node's key: ``stored`` at all, and the ``problem`` for which it is not sent, or ""."""

    name: str
    stored: bool
    problem: str = ""


def keys_of(deployment: Deployment, tenants: Iterable[Tenant], nodes: Collection[Node]) -> list[StoredKey]:
    """One for each tenant, then one for each node."""
    asked = origins_of_tenants(deployment, nodes)
    return [
        *(_stored(each, "credential_sealed", f"tenant {each.name}", asked) for each in tenants),
        *(_stored(each, "headers_sealed", f"node {each.name}", origins_of_node(each)) for each in nodes),
    ]


def equal_stored_keys(tenants: Iterable[Tenant]) -> str:
    """The sentence that says which tenants hold one key; "" for none. What cannot be opened is left out:
    it is not sent either."""
    return equal_keys((tenant.name, _headers(tenant)) for tenant in tenants)


def _headers(tenant: Tenant) -> Headers:
    try:
        return open_headers(tenant.credential_sealed, place_of(tenant, "credential_sealed"), sent_to=())
    except SealBroken:
        return ()


def _stored(row: Tenant | Node, column: str, name: str, asked: frozenset[str]) -> StoredKey:
    sealed = getattr(row, column)
    try:
        open_headers(sealed, place_of(row, column), sent_to=asked)
    except SealBroken as problem:
        return StoredKey(name, True, str(problem))
    return StoredKey(name, bool(sealed))
