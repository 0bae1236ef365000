"""Target: a deployment with its nodes, tenants and limits, loaded from flags, YAML or the database.

The fleet file schema is ``kvaudit.fleet/1``; secrets are never in it, only the names of environment
variables that hold them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvaudit.checks.contract import Rules


@dataclass(frozen=True, slots=True)
class Credentials:
    """How a node or tenant is addressed: headers (``Authorization`` included), CA file, client
    certificate. Values are secrets: never in repr, reports or logs."""

    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    ca_file: str = ""
    client_cert: str = ""
    client_key: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """One process to audit. ``url`` is its base URL; ``role`` is prefill, decode, unified or ""."""

    name: str
    url: str
    role: str = ""
    engine: str = "auto"
    credentials: Credentials = field(default_factory=Credentials)
    pointers: tuple[tuple[str, str], ...] = ()  # generic engine: capacity, max_request, in_use, shards


@dataclass(frozen=True, slots=True)
class Tenant:
    name: str
    credentials: Credentials = field(default_factory=Credentials)


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
