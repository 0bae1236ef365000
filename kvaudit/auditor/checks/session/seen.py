"""What the rounds against a session API saw, as the verdict reads it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvaudit.auditor.readings import EngineFacts
from kvaudit.auditor.verdict import Evidence

CLAIMS = 59
"""Claims without a find bound the rate at 5 % (95 % confidence)."""


@dataclass(frozen=True, slots=True)
class ForeignData:
    """Something that belongs to somebody else. Only our own markers are looked for: safe to show."""

    kind: str  # released data, stale handle, late write, shifted reply
    reader: str
    owner: str
    marker: str
    release: str  # the way in which the owner's session had ended
    shared: bool
    round: int


@dataclass(slots=True)
class SessionSeen:
    """Counts of all rounds. ``pool_*`` are numbers read, None = not shown."""

    accounts: tuple[str, ...] = ()
    planned: int = CLAIMS
    finds: list[ForeignData] = field(default_factory=list)
    claims: int = 0  # of sizes that are allowed, answered
    reused: int = 0  # of those, claims that got a slot which A had released
    reuse_by: str = ""
    seeds: int = 0
    own_read: int = 0  # A's own markers that A could read before releasing
    own_written: int = 0
    released: dict[str, int] = field(default_factory=dict)
    not_released: dict[str, int] = field(default_factory=dict)
    oversize_asked: int = 0
    oversize_taken: int = 0
    stale_asked: int = 0
    stale_own: int = 0  # 2xx with A's own old data
    stale_taken: int = 0  # 2xx, data of nobody
    stale_odd: int = 0  # refused with a status that says something else
    late_tried: int = 0
    late_tested: int = 0  # the save ended after B had claimed
    echoes: int = 0
    echoes_right: int = 0
    cut: int = 0
    requests: int = 0
    void: int = 0
    denied: str = ""
    pool: EngineFacts | None = None
    pool_problem: str = ""
    in_use_before: float | None = None
    in_use_after: float | None = None
    shared_rounds: int = 0
    largest: int | None = None
    largest_declared: bool = False
    not_there: frozenset[str] = frozenset()
    undeclared: tuple[str, ...] = ()
    stopped: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    unaskable: str = ""


def allowance(before: float) -> float:
    """What ``in_use`` may differ by: others come and go."""
    return max(1.0, 0.02 * before)
