"""Tells what can be said of stored keys without showing them: whether they open, for which addresses, and
whether two tenants hold one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from kvaudit.auditor.fleetfile.keys import equal_keys
from kvaudit.server.accounts.sealed_fields import place_of
from kvaudit.server.accounts.sealing import SealBroken, opening_key
from kvaudit.server.fleet.key_origins import origins_of_node, origins_of_tenants
from kvaudit.server.fleet.models import Deployment, Node, Tenant
from kvaudit.server.fleet.sealed_headers import Headers, open_headers


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A tenant's or node's key: whether one is stored, where it is sent, and the ``problem`` for which it
    is not, or ""."""

    kind: str  # tenant or node
    name: str
    stored: bool
    set_at: datetime | None
    origins: tuple[str, ...]
    problem: str = ""


def keys_of(deployment: Deployment, tenants: Iterable[Tenant], nodes: Collection[Node]) -> list[StoredKey]:
    """One for each tenant, then one for each node."""
    asked = origins_of_tenants(deployment, nodes)
    return [
        *(
            _stored("tenant", tenant, "credential_sealed", asked, tenant.credential_set_at)
            for tenant in tenants
        ),
        *(_stored("node", node, "headers_sealed", origins_of_node(node), None) for node in nodes),
    ]


def addresses_shown(keys: Iterable[StoredKey]) -> str:
    """Names the addresses that a person saw who enters a key: it is for these, not for what somebody
    makes of them in between."""
    seen = [[key.kind, key.name, *key.origins] for key in keys]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def equal_stored_keys(tenants: Iterable[Tenant]) -> str:
    """The sentence that says which tenants hold one key; "" for none. What cannot be opened is left out:
    it is not sent either."""
    return equal_keys((tenant.name, _headers(tenant)) for tenant in tenants)


def closed_keys(tenants: QuerySet[Tenant]) -> int:
    """How many of these have a stored key that no key of ENCRYPTION_KEYS opens, as after a restore without them. One
    query."""
    stored = tenants.exclude(credential_sealed="").only("deployment_id", "name", "credential_sealed")
    return sum(
        opening_key(tenant.credential_sealed, place_of(tenant, "credential_sealed")) is None
        for tenant in stored.iterator()
    )


def _headers(tenant: Tenant) -> Headers:
    try:
        return open_headers(tenant.credential_sealed, place_of(tenant, "credential_sealed"), sent_to=())
    except SealBroken:
        return ()


def _stored(
    kind: str, row: Tenant | Node, column: str, asked: frozenset[str], set_at: datetime | None
) -> StoredKey:
    sealed, problem = getattr(row, column), ""
    try:
        open_headers(sealed, place_of(row, column), sent_to=asked)
    except SealBroken as fault:
        problem = str(fault)
    return StoredKey(kind, row.name, bool(sealed), set_at, tuple(sorted(asked - {""})), problem)
