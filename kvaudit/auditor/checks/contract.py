"""Defines what a check implements (`Probe`: observe talks to the target, judge is pure) and what it gets to see
(`Audit`).

A check sees an `Audit`: the nodes as the runner read them, what the operator declared, the rules,
and what only history knows. It never sees a database, a request or another check.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kvaudit.auditor.readings import EngineFacts, Fingerprint
from kvaudit.auditor.verdict import Evidence, Result

if TYPE_CHECKING:  # active checks bring it with them; the gate starts without
    from kvaudit.auditor.checks.prober_protocol import Prober
    from kvaudit.auditor.checks.session.api import SessionWire

Seen = TypeVar("Seen")


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """One node as this run found it. Exactly one of ``facts`` and ``problem`` is set.

    ``problem`` is a sentence (refused, timed out, HTML instead of JSON, ...); ``role`` is the
    declared one ("" where none was given).
    """

    name: str
    url: str
    role: str = ""
    facts: EngineFacts | None = None
    problem: str = ""
    evidence: tuple[Evidence, ...] = ()
    transient: bool = False  # waiting may help: refused, 503, still loading
    others: tuple[EngineFacts, ...] = ()  # further processes that answered at this address
    connections: int = 1  # fresh connections over which it was read
    unanswered: str = ""  # why another connection brought nothing, though the first did
    replicas: int = 0  # processes that are declared to answer there; 0 where nobody said
    behind: str = ""  # the node at whose address this further process answered

    @property
    def effective_role(self) -> str:
        """The role read from the process, else the declared one, else ""."""
        if self.facts is not None and self.facts.role.known:
            return str(self.facts.role.value)
        return self.role


@dataclass(frozen=True, slots=True)
class Rules:
    """Policy: what is asked of every node. Shipped defaults are in checks.md."""

    headroom: float = 1.25  # x context; 1.0 is the least allowed
    pins: tuple[str, ...] = ("sglang>=0.5.22",)
    context: int | None = None  # tokens, declared; the larger of declared and read counts
    edge_limit: int | None = None  # tokens, declared: longer prompts are refused at the edge
    conditions: Mapping[str, bool] = field(default_factory=dict)  # advisory conditions, declared
    disagg_buffer: int | None = None  # tokens, declared: what one prefill-to-decode transfer can hold
    components: Mapping[str, str] = field(default_factory=dict)  # connector or store -> version, declared


@dataclass(frozen=True, slots=True)
class History:
    """What only a database knows. A gate without ``--server`` has none, and says so."""

    edge_limit_seen_refusing: bool = False
    fingerprint_changed_at: datetime | None = None  # last significant change
    gate_completed_at: datetime | None = None  # pool, version, rejection, canary all completed since then
    gate_expired: bool = False
    previous: Mapping[str, Fingerprint] = field(default_factory=dict)  # node name -> last significant
    pool_use_after: Sequence[float] = ()  # measure pool_use_after of earlier rejection runs, oldest first
    prefill_residuals: Sequence[float] = ()  # measure median_residual since the last change, oldest first


Asker = Callable[[str, str], Awaitable["Anonymous"]]
"""(node name, path) -> what an allow-listed GET brings *without* any key."""


@dataclass(frozen=True, slots=True)
class Anonymous:
    """An answer to a request that carried no credential; ``status`` 0 = refused or silent."""

    status: int
    body: bytes = b""
    problem: str = ""
    exposed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Audit:
    """All that a check may use. ``complete`` is True for a deployment-wide audit (every role and
    node must be there), False when single nodes were given (an init container gates its own)."""

    deployment: str
    nodes: Sequence[NodeSeen]
    rules: Rules = field(default_factory=Rules)
    history: History | None = None
    complete: bool = False
    expected_roles: frozenset[str] = frozenset()
    ask_anonymously: Asker | None = None
    prober: Prober | None = None  # None in passive runs, or why_no_prober says what is missing
    why_no_prober: str = ""
    prober_needs: str = ""  # what to do about it; "" where the way in (entry, keys) is what is missing
    session: SessionWire | None = None  # None unless the target describes a session API and two accounts
    why_no_session: str = ""
    # Lengths in tokens that failed before and are asked again, wherever N is now.
    replayed: tuple[int, ...] = ()


class Probe(Protocol[Seen]):
    """How a check asks and judges: the ``PROBE`` of a check's `probe` module."""

    id: str

    async def observe(self, audit: Audit) -> Seen:
        """Talk to the target and return a plain observation."""
        ...

    def judge(self, seen: Seen, audit: Audit) -> Result:
        """Observation + parameters -> result. Pure: tested without a network."""
        ...


def plain(value: Any) -> Any:
    """Measures hold plain JSON: readings become ``{value, source, state}``."""
    if hasattr(value, "as_report"):
        return value.as_report()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value
