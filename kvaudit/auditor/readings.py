"""Holds what was read from an engine, from where, and how sure that is.

A `Reading` never pretends: zero, null and absent are *unknown*. `EngineFacts` gathers the readings
of one process; `Fingerprint` keeps those that decide whether older evidence still describes it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

T = TypeVar("T")

POOL_TOLERANCE = 0.02
"""A pool is redrawn at every start; a move of up to 2 % is not a change (checks.md, Fingerprint)."""

LARGEST_TOKENS = 10**12
"""A token count above this is not a count (real pools are below 10^9): such a reading is unknown."""


class State(StrEnum):
    READ = "read"  # from the running process
    DECLARED = "declared"  # by the operator, in flags or a fleet file
    DERIVED = "derived"  # computed from readings
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """A value with its source (``GET /server_info max_total_num_tokens``) and its state."""

    value: T | None
    source: str
    state: State

    @property
    def known(self) -> bool:
        return self.state is not State.UNKNOWN

    def __post_init__(self) -> None:
        if (self.value is None) != (self.state is State.UNKNOWN):
            raise ValueError("a reading has a value exactly when its state is not unknown")

    def as_report(self) -> dict[str, Any]:
        return {"value": self.value, "source": self.source, "state": self.state.value}


def read(value: T, source: str) -> Reading[T]:
    return Reading(value, source, State.READ)


def declared(value: T, source: str) -> Reading[T]:
    return Reading(value, source, State.DECLARED)


def derived(value: T, source: str) -> Reading[T]:
    return Reading(value, source, State.DERIVED)


def unknown(why: str) -> Reading[Any]:
    """No value; ``why`` says what was looked for and what was found instead."""
    return Reading(None, why, State.UNKNOWN)


def tokens(value: object, source: str) -> Reading[int]:
    """A token count out of arbitrary JSON or metric text; 0, null, negative, NaN, bool, text that
    is no whole number and anything above 10^12 are unknown, never "no pool"."""
    count = whole_number(value)
    if count is None or not 0 < count <= LARGEST_TOKENS:
        return unknown(f"{source} is {_short(value)}")
    return read(count, source)


def text(value: object, source: str) -> Reading[str]:
    """A non-empty printable string of at most 300 characters out of arbitrary JSON; else unknown
    (a NUL could not even be stored)."""
    if isinstance(value, str) and 0 < len(value.strip()) <= 300 and value.strip().isprintable():
        return read(value.strip(), source)
    return unknown(f"{source} is {_short(value)}")


def whole_number(value: object) -> int | None:
    """An int from an int, an integral float or decimal text ("681280", "512.0"); else None."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        if not 0 < len(value) <= 40:
            return None
        try:
            value = float(value) if not value.strip().isdigit() else int(value)
        except ValueError:
            return None
        if isinstance(value, int):
            return value
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    return None


def _short(value: object) -> str:
    shown = "absent" if value is None else repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


@dataclass(frozen=True, slots=True)
class RankPool:
    """KV slots of one data-parallel rank, in tokens; a request lives on one rank. ``uniform`` is what an unknown pool
    holds if all layers keep one kind of cache: a number for whoever declares that they do (`if_uniform`)."""

    rank: str
    pool: Reading[int]
    sliding_window: Reading[int] | None = None  # SWA pool of hybrid models, else None
    uniform: Reading[int] | None = None

    @property
    def usable(self) -> Reading[int]:
        """The smaller of the full and the sliding-window pool; unknown while either is."""
        if self.sliding_window is None or not self.pool.known:
            return self.pool
        if not self.sliding_window.known:
            return self.sliding_window
        return min(self.pool, self.sliding_window, key=lambda reading: reading.value or 0)


@dataclass(frozen=True, slots=True)
class Worker:
    """A node that a router names: its base URL and role ("" where the router does not say)."""

    url: str
    role: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Exposure:
    """Something reachable that should not be. ``severity`` is "fail" or "warn" (checks.md 11)."""

    what: str
    where: str
    severity: str


_NOTHING: Reading[Any] = unknown("not read")


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """All that one audit learnt of one process. Lengths are in tokens.

    ``pool`` is the smallest usable pool over ranks; ``input_limit`` the first prompt length that
    the engine itself says it refuses; ``process`` identifies the start (pools are redrawn at each).
    ``settings`` are configuration readings that only the fingerprint and role comparison use
    (quantization, kv_cache_dtype, page_size, tp_size, ...). ``conditions`` answers advisory
    conditions by name (True, False, or absent for unknown). ``features`` are version fingerprints:
    name -> seen or not seen; absent means not looked for.
    """

    engine: str
    kind: str = "node"  # "node" or "router"
    version: Reading[str] = _NOTHING
    model: Reading[str] = _NOTHING
    revision: Reading[str] = _NOTHING
    context: Reading[int] = _NOTHING
    pool: Reading[int] = _NOTHING
    input_limit: Reading[int] = _NOTHING
    role: Reading[str] = _NOTHING  # prefill, decode or unified
    process: Reading[str] = _NOTHING
    ranks: tuple[RankPool, ...] = ()
    settings: Mapping[str, Reading[Any]] = field(default_factory=dict)
    conditions: Mapping[str, bool] = field(default_factory=dict)
    features: Mapping[str, bool] = field(default_factory=dict)
    components: Mapping[str, str] = field(default_factory=dict)  # connector or offload name -> version or ""
    exposures: tuple[Exposure, ...] = ()
    workers: tuple[Worker, ...] = ()
    counters: Mapping[str, float] = field(default_factory=dict)  # move while serving; never a fingerprint
    contradictions: tuple[str, ...] = ()  # clauses: two answers that cannot both be this process's
    notes: tuple[str, ...] = ()  # sentences: low confidence, traps met, what was not asked

    def setting(self, name: str) -> Reading[Any]:
        return self.settings.get(name, _NOTHING)


def largest(readings: Iterable[Reading[int]]) -> tuple[Reading[int] | None, tuple[str, ...]]:
    """The largest known of one number's sources, in tokens, and the clause that says how they differ. None when no
    source knows it. A promise to clients that is too small hides what the engine takes (redteam case context_card)."""
    known = [reading for reading in readings if reading.value is not None]
    if not known:
        return None, ()
    most = max(known, key=lambda reading: reading.value or 0)
    least = min(known, key=lambda reading: reading.value or 0)
    return most, () if most.value == least.value else (differing(most, least),)


def differing(one: Reading[int], other: Reading[int]) -> str:
    return f"{one.source} says {one.value:,}, but {other.source} says {other.value:,}"


def smallest_pool(ranks: Iterable[RankPool]) -> Reading[int]:
    """The minimum over ranks, never the sum; unknown when there is no rank or one is unknown."""
    usable = [rank.usable for rank in ranks]
    if not usable:
        return unknown("no rank reported a pool")
    for reading in usable:
        if not reading.known:
            return reading
    return min(usable, key=lambda reading: reading.value or 0)


def if_uniform(facts: EngineFacts) -> EngineFacts:
    """The facts of a model that is declared to keep one kind of cache in all its layers. What the process itself says
    of that outweighs the operator."""
    if facts.conditions.get("hybrid_kv") is True:
        return facts
    ranks = tuple(
        replace(rank, pool=rank.uniform) if rank.uniform is not None and not rank.pool.known else rank
        for rank in facts.ranks
    )
    if ranks == facts.ranks:
        return facts
    doubt = "the pool counts on the declared hybrid_kv: false: low confidence"
    return replace(facts, ranks=ranks, pool=smallest_pool(ranks), notes=(*facts.notes, doubt))


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of a fingerprint that moved. ``significant`` is False for a pool within 2 %."""

    name: str
    before: Any
    after: Any
    significant: bool = True


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The configuration that evidence belongs to: exact fields, and pools compared with tolerance."""

    exact: Mapping[str, Any]
    pools: Mapping[str, int | None]

    @property
    def digest(self) -> str:
        """SHA-256 (hex, first 16) over the exact fields only: a restart alone keeps it."""
        body = json.dumps(dict(self.exact), sort_keys=True, default=str, separators=(",", ":"))
        return hashlib.sha256(body.encode()).hexdigest()[:16]

    def as_json(self) -> dict[str, Any]:
        return {"digest": self.digest, "exact": dict(self.exact), "pools": dict(self.pools)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Fingerprint:
        return cls(dict(stored.get("exact") or {}), dict(stored.get("pools") or {}))


def fingerprint(facts: EngineFacts) -> Fingerprint:
    """The fingerprint of one node; unknown fields are None, so becoming known is a change."""
    exact: dict[str, Any] = {
        "engine": facts.engine,
        "version": facts.version.value,
        "model": facts.model.value,
        "revision": facts.revision.value,
        "context": facts.context.value,
        "role": facts.role.value,
        **{f"settings.{name}": reading.value for name, reading in sorted(facts.settings.items())},
        **{f"components.{name}": version for name, version in sorted(facts.components.items())},
    }
    return Fingerprint(exact, {"pool": facts.pool.value})


def diff(before: Fingerprint, after: Fingerprint, *, limits: Iterable[int] = ()) -> tuple[FieldChange, ...]:
    """Field by field; a pool change counts when it exceeds 2 % or crosses one of ``limits`` (tokens:
    context, headroom x context, edge limit)."""
    changes = [
        FieldChange(name, before.exact.get(name), after.exact.get(name))
        for name in sorted({*before.exact, *after.exact})
        if before.exact.get(name) != after.exact.get(name)
    ]
    crossings = tuple(limits)
    for name in sorted({*before.pools, *after.pools}):
        old, new = before.pools.get(name), after.pools.get(name)
        if old != new:
            changes.append(FieldChange(name, old, new, _pool_moved(old, new, crossings)))
    return tuple(changes)


def _pool_moved(old: int | None, new: int | None, limits: Iterable[int]) -> bool:
    if old is None or new is None:
        return True
    if abs(new - old) > POOL_TOLERANCE * old:
        return True
    return any((old < limit) != (new < limit) for limit in limits)


def deployment_digest(fingerprints: Iterable[Fingerprint]) -> str:
    """A deployment's fingerprint is the set of its nodes' distinct ones: replica count alone
    changes nothing. "" when there is none."""
    distinct = sorted({each.digest for each in fingerprints})
    return hashlib.sha256("\n".join(distinct).encode()).hexdigest()[:16] if distinct else ""
