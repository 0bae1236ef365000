"""What the pool holds, what its headroom costs, and what an edge limit would refuse instead: the numbers
behind the choice between a bigger pool and an explicit 400."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvaudit.checks.pool_numbers import required_tokens
from kvaudit.web.measured import count, real, rows, tokens

PARTS = (1, 2, 4, 16)
"""Context over these: the lengths of which we say how many fit at once."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How many requests of ``length`` tokens the smallest node holds at once; None = unknown."""

    name: str
    length: int
    at_once: int | None


@dataclass(frozen=True, slots=True)
class Capacity:
    """Tokens, all of one `pool` result. ``context`` is what clients may send: the engine's, or a declared
    edge limit below it. ``edge`` is the longest prompt that this pool holds with its headroom."""

    pool: int
    context: int
    headroom: float
    required: int
    held_back: int  # headroom: what the pool must hold beyond one longest request
    edge: int
    fits: Sequence[Fit]
    after_growth: int  # longest requests at once in a pool of just the required size
    at_edge: int | None  # requests of the edge's length at once in the pool as it is
    declared_edge: int | None

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
    def held_back_share(self) -> float:
        """The headroom's share of the required pool."""
        return self.held_back / self.required

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


def capacity_of(measures: Mapping[str, Any] | None) -> Capacity | None:
    """None where pool or context is unknown: then there is nothing to weigh."""
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
        after_growth=required // context,
        at_edge=_at_once(measures, pool, edge) if edge else None,
        declared_edge=tokens(measures.get("edge_limit")),
    )


def _part(part: int) -> str:
    return "full context" if part == 1 else f"1/{part} of it"


def _at_once(measures: Mapping[str, Any], pool: int, length: int) -> int | None:
    """Requests of a length that the tightest node holds, rank by rank; a request lives on one rank."""
    if length < 1:
        return None
    held = []
    for node in rows(measures.get("nodes")):
        ranks = [tokens(rank.get("usable")) for rank in rows(node.get("ranks"))] or [tokens(node.get("pool"))]
        if any(each is None for each in ranks):
            return None
        held.append(sum((each or 0) // length for each in ranks))
    return min(held) if held else pool // length
