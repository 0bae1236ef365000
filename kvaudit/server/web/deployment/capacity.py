"""What the pool holds, what its headroom costs, and what an edge limit would refuse instead: the numbers
behind the choice between a bigger pool and an explicit 400."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kvaudit.auditor.checks.pool.numbers import required_tokens
from kvaudit.server.inquiries.request_logs.lengths import RequestCount
from kvaudit.server.inquiries.request_logs.production import Lengths
from kvaudit.server.web.kit.measure_values import count, real, rows, tokens

PARTS = (1, 2, 4, 16)
"""Context over these: the lengths of which we say how many fit at once."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How many requests of ``length`` tokens the smallest node holds at once; None = unknown."""

    name: str
    length: int
    at_once: int | None


@dataclass(frozen=True, slots=True)
class Ranks:
    """All ranks of all nodes; a request lives on one of them, and each must hold the required size."""

    number: int
    short: int  # those that hold less
    missing: int  # tokens that these lack in all
    at_once: int  # longest requests at once on the tightest node, once every rank holds the required size


@dataclass(frozen=True, slots=True)
class RefusedRequests:
    """Requests of a log that an edge limit would refuse: longer than the edge and not longer than the context.
    ``log`` is the log's primary key, ``requests`` how many it holds."""

    refused: RequestCount
    requests: int
    log: int
    imported_at: datetime


@dataclass(frozen=True, slots=True)
class Capacity:
    """Tokens, all of one `pool` result. ``pool`` is the smallest rank's. ``context`` is what clients may send: the
    engine's, or a declared edge limit below it. ``edge`` is the longest prompt that this pool holds with its
    headroom."""

    pool: int
    context: int
    headroom: float
    required: int
    held_back: int  # headroom: what the pool must hold beyond one longest request
    edge: int
    fits: Sequence[Fit]
    ranks: Ranks | None  # None where a rank is unknown
    at_edge: int | None  # requests of the edge's length at once in the pool as it is
    declared_edge: int | None
    asked: RefusedRequests | None = None  # None without a log that says how long requests are

    @property
    def missing(self) -> int:
        """Tokens that the pool lacks; 0 when it is large enough."""
        return max(0, self.required - self.pool)

    @property
    def spare(self) -> int:
        return max(0, self.pool - self.required)

    @property
    def growth(self) -> float:
        """What is missing, as a share of the pool as it is."""
        return self.missing / self.pool

    @property
    def held_back_percent(self) -> float:
        """The headroom's share: of the pool as it is, and of the required one where the pool is smaller."""
        return round(100 * self.held_back / max(self.pool, self.required), 1)

    @property
    def refused(self) -> int:
        """How many lengths the edge would refuse that are promised now."""
        return max(0, self.context - self.edge)

    @property
    def refused_share(self) -> float:
        return self.refused / self.context

    @property
    def first_refused(self) -> int:
        return self.edge + 1

    @property
    def unheld(self) -> bool:
        """One longest request alone does not fit: prompts exist that the pool cannot hold."""
        return self.pool < self.context

    @property
    def sentence(self) -> str:
        full = self.fits[0].at_once
        if self.unheld:
            return (
                f"The pool of {self.pool:,} tokens cannot hold even one request of the promised {self.context:,}: "
                "a bigger pool or an explicit 400 is needed."
            )
        holds = "an unknown number of" if full is None else f"{full:,}"
        lead = f"The pool of {self.pool:,} tokens holds {holds} full-context request{'' if full == 1 else 's'} at once"
        if self.missing:
            return f"{lead}, but {self.missing:,} tokens of its headroom are missing."
        return f"{lead} and {self.spare:,} tokens more than it must."


def capacity_of(measures: Mapping[str, Any] | None, lengths: Lengths | None = None) -> Capacity | None:
    """None where pool or context is unknown: then there is nothing to weigh. ``lengths`` of the newest request log."""
    measures = measures or {}
    pool, context = tokens(measures.get("pool_tokens")), tokens(measures.get("context_tokens"))
    headroom = real(measures.get("headroom"))
    if pool is None or context is None or headroom is None or not 1 <= headroom <= 100:
        return None
    required = required_tokens(headroom, context)
    edge = math.floor(pool / headroom)
    fits = [Fit(_part(part), context // part, _at_once(measures, pool, context // part)) for part in PARTS]
    known = count(measures.get("full_context_requests"))
    if known is not None:
        fits[0] = Fit(fits[0].name, fits[0].length, known)
    return Capacity(
        pool=pool,
        context=context,
        headroom=headroom,
        required=required,
        held_back=required - context,
        edge=edge,
        fits=[fit for fit in fits if fit.length > 0],
        ranks=_ranks(measures, pool, required, context),
        at_edge=_at_once(measures, pool, edge) if edge else None,
        declared_edge=tokens(measures.get("edge_limit")),
        asked=_asked(lengths, edge, context),
    )


def _asked(lengths: Lengths | None, edge: int, context: int) -> RefusedRequests | None:
    if lengths is None or edge >= context:
        return None
    refused = lengths.between(edge + 1, context + 1)
    return RefusedRequests(refused, lengths.requests, lengths.log, lengths.imported_at) if refused else None


def _part(part: int) -> str:
    return "full context" if part == 1 else f"1/{part} of it"


def _at_once(measures: Mapping[str, Any], pool: int, length: int) -> int | None:
    """Requests of a length that the tightest node holds, rank by rank; a request lives on one rank."""
    if length < 1:
        return None
    held = []
    for ranks in _nodes(measures, pool):
        if any(rank is None for rank in ranks):
            return None
        held.append(sum((rank or 0) // length for rank in ranks))
    return min(held)


def _ranks(measures: Mapping[str, Any], pool: int, required: int, context: int) -> Ranks | None:
    known = []
    for ranks in _nodes(measures, pool):
        known.append([rank for rank in ranks if rank is not None])
        if len(known[-1]) < len(ranks):
            return None
    every = [rank for ranks in known for rank in ranks]
    lacking = [required - each for each in every if each < required]
    at_once = min(sum(max(rank, required) // context for rank in ranks) for ranks in known)
    return Ranks(len(every), len(lacking), sum(lacking), at_once)


def _nodes(measures: Mapping[str, Any], pool: int) -> list[list[int | None]]:
    """Tokens of each rank of each node, None = unknown; one rank of ``pool`` where no node is given."""
    found = [
        [tokens(rank.get("usable")) for rank in rows(node.get("ranks"))] or [tokens(node.get("pool"))]
        for node in rows(measures.get("nodes"))
    ]
    return found or [[pool]]
