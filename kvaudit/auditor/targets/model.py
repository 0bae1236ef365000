"""What a run audits: a deployment with its nodes, tenants and limits, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvaudit.auditor.checks.contract import Rules
from kvaudit.auditor.fleetfile.keys import equal_keys
from kvaudit.auditor.transport import KeyForElsewhere, origin_of

if TYPE_CHECKING:
    from kvaudit.auditor.checks.session.api import SessionPlan


@dataclass(frozen=True, slots=True)
class Credentials:
    """How a node or tenant is addressed: headers (``Authorization`` included), CA file, client
    certificate, and the only folder that these files may lie in (None: anywhere, as on the command line).
    Values are secrets: never in repr, reports or logs. ``origins`` are those that whoever stored the headers
    gave them for; None where they were given for this very run."""

    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    ca_file: str = ""
    client_cert: str = ""
    client_key: str = ""
    tls_folder: str | None = None
    origins: frozenset[str] | None = None

    def headers_for(self, url: str) -> tuple[tuple[str, str], ...]:
        """The headers, for whoever is about to ask ``url``. Raises `KeyForElsewhere` where they were not
        given for its origin: an address can be changed by more people than those who hold the key."""
        if self.headers and self.origins is not None and origin_of(url) not in self.origins:
            raise KeyForElsewhere(
                f"The stored key was not given for {origin_of(url) or 'this address'}, so nothing was sent: "
                "enter the key again if it belongs there."
            )
        return self.headers


@dataclass(frozen=True, slots=True)
class Node:
    """One process to audit. ``url`` is its base URL; ``role`` is prefill, decode, unified or ""."""

    name: str
    url: str
    role: str = ""
    engine: str = "auto"
    credentials: Credentials = field(default_factory=Credentials)
    pointers: tuple[tuple[str, str], ...] = ()  # generic engine: capacity, max_request, in_use, shards
    replicas: int = 0  # processes that answer at this address in turn; 0 where nobody said


@dataclass(frozen=True, slots=True)
class Tenant:
    """One of the tenants that active checks ask as. ``salt`` is the cache salt this tenant sends with
    every request; "" where the entry sets salts itself, or nobody does."""

    name: str
    credentials: Credentials = field(default_factory=Credentials)
    salt: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Target:
    """What a run audits. ``entry`` is the URL that tenants use (router or node)."""

    slug: str
    nodes: tuple[Node, ...]
    entry: str = ""
    model: str = ""
    tenants: tuple[Tenant, ...] = ()
    rules: Rules = field(default_factory=Rules)
    complete: bool = False  # every node of the deployment is listed here
    consent: bool = False  # prompts of N-8 tokens and more may be sent although the pool is small
    session: SessionPlan | None = None  # how a session API is asked; its accounts are the tenants
    tenants_problem: str = ""  # why nothing may be asked in tenants' names, although keys are stored
    session_held: str = ""  # why a session API that is described may not be asked now
    entry_sets_salts: bool = False  # the entry is declared to overwrite the salts that clients send

    @property
    def why_no_tenants(self) -> str:
        """Why nothing may be asked in tenants' names although keys are there; "" where it may."""
        return self.tenants_problem or equal_keys(
            (tenant.name, tenant.credentials.headers) for tenant in self.tenants
        )

    @property
    def asked_at(self) -> str:
        """The URL that tenants' requests go to: the entry, or the only node; "" where neither is there."""
        return tenants_address(self.entry, [node.url for node in self.nodes])


def tenants_address(entry: str, nodes: Sequence[str]) -> str:
    """Where a deployment with this entry and these nodes' URLs is asked in tenants' names."""
    return entry or (nodes[0] if len(nodes) == 1 else "")


def tenants_origins(entry: str, nodes: Sequence[str], session: str) -> frozenset[str]:
    """Every origin that a tenant's key is sent to: the entry's or only node's, and the session API's."""
    return frozenset(origin_of(url) for url in (tenants_address(entry, nodes), session) if url)
