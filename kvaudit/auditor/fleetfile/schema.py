"""Defines what a fleet file says, as plain values. Lengths are tokens, times of day are ``HH:MM`` in ``zone``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvaudit.auditor.text.quoting import without_keys

if TYPE_CHECKING:
    from kvaudit.auditor.checks.session.api import SessionPlan

SCHEMA = "kvaudit.fleet/1"
LARGEST_FILE = 4 * 1024 * 1024
"""Bytes; a fleet of 10,000 nodes stays below 2 MiB."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One mistake: the line it is on (0 when it is about the whole file) and what to do about it. Whatever
    of the file a sentence repeats, it holds nothing that could be a key."""

    line: int
    sentence: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", without_keys(self.sentence))

    def __str__(self) -> str:
        return f"line {self.line}: {self.sentence}" if self.line else self.sentence


@dataclass(frozen=True, slots=True)
class FleetNode:
    """One process. ``headers_env`` pairs a header with the variable that holds its whole value;
    ``key_env`` names the variable of a bearer key. ``role`` and ``engine`` are "" where not given."""

    name: str
    url: str
    role: str = ""
    engine: str = ""
    headers_env: tuple[tuple[str, str], ...] = ()
    key_env: str = ""
    ca_file: str = ""
    client_cert: str = ""
    client_key: str = ""
    pointers: tuple[tuple[str, str], ...] = ()
    replicas: int = 0  # processes that answer at this address in turn; 0 where nobody said
    line: int = 0


@dataclass(frozen=True, slots=True)
class FleetTenant:
    name: str
    key_env: str = ""
    headers_env: tuple[tuple[str, str], ...] = ()
    salt_env: str = ""  # the variable that holds the cache salt this tenant sends
    line: int = 0


@dataclass(frozen=True, slots=True)
class FleetWindow:
    """When active checks may run. ``days`` are mon..sun, empty = every day; ``end`` before ``start``
    means the next day."""

    start: str
    end: str
    days: tuple[str, ...] = ()
    zone: str = "UTC"

    def as_json(self) -> dict[str, Any]:
        return {"days": list(self.days), "from": self.start, "to": self.end, "zone": self.zone}


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """A schedule: exactly one of ``cron`` (five fields, read in ``zone``) and ``interval`` (seconds)."""

    name: str
    checks: tuple[str, ...]
    cron: str = ""
    zone: str = "UTC"
    interval: int | None = None
    jitter: int = 0  # seconds
    windows: tuple[FleetWindow, ...] = ()
    budget_tokens: int | None = None
    budget_seconds: int | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class FleetDeployment:
    """A model as offered to tenants. ``complete`` in the audit's sense: all its nodes are listed."""

    slug: str
    nodes: tuple[FleetNode, ...]
    team: str = ""
    owner: str = ""
    contact: str = ""
    engine: str = "auto"
    entry: str = ""
    entry_sets_salts: bool = False  # the entry overwrites the salts that clients send
    model: str = ""
    context: int | None = None
    edge_limit: int | None = None
    disagg_buffer: int | None = None
    headroom: float | None = None
    pins: tuple[str, ...] | None = None
    conditions: tuple[tuple[str, bool], ...] = ()
    components: tuple[tuple[str, str], ...] = ()  # connector or store -> version
    consent: bool = False
    consent_by: str = ""
    consent_reason: str = ""
    windows: tuple[FleetWindow, ...] = ()
    plans: tuple[FleetPlan, ...] = ()
    tenants: tuple[FleetTenant, ...] = ()
    session: SessionPlan | None = None  # a session API beside or instead of a model
    line: int = 0


@dataclass(frozen=True, slots=True)
class FleetFile:
    """All that could be understood, and every problem. With problems nothing may be imported."""

    deployments: tuple[FleetDeployment, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def usable(self) -> bool:
        return bool(self.deployments) and not self.problems
