"""Reads what one canary run adds to the evidence of a deployment: ``measures["evidence"]``. Pure.

What cannot be understood counts nothing: it is evidence of no build, or no trial. Each number is held to what it can
be, since a weight above its count would be evidence that nobody has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

BOUNDARY = "boundary"
STRATA = (BOUNDARY, "edge", "log-uniform", "uniform")
PRODUCTION, NEWCOMER, DRAINED = "production", "newcomer", "drained"
PLACES = (PRODUCTION, NEWCOMER, DRAINED)
MOST_VOID = 0.1
"""A run with more void trials than this counts nothing: what was lost may be what leaked."""

Way = tuple[str, str]
"""Mode and tail of a request."""


@dataclass(frozen=True, slots=True)
class Trials:
    """Clean accepted trials of one kind. ``weight``: sum of the chances that a leak would have read pages of ours."""

    stratum: str
    way: Way
    replica: str  # "" = nobody knows which
    count: int
    weight: float


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """What one run adds. ``build`` "" = unknown. ``doubt``: why this run alone forbids a pass (a miss that nothing
    explains), "" where only the number of trials may be too small."""

    at: datetime
    build: str
    build_said: str
    where: str
    void_share: float
    trials: tuple[Trials, ...]
    surfacing: Mapping[Way, tuple[int, int]]  # surfaced, trials
    hits: int
    doubt: str = ""

    @property
    def counted(self) -> float:
        """The share of its trials that counts."""
        return 1 - self.void_share if self.void_share <= MOST_VOID else 0.0


def read(at: datetime, evidence: object, doubt: str = "") -> RunEvidence | None:
    """None where there is no evidence that could be understood: of runs before evidence was kept, or of a build, a
    place or a share of void trials that nobody can tell. ``doubt`` counts where the evidence itself says nothing."""
    if not isinstance(evidence, Mapping):
        return None
    where, void = evidence.get("where"), _number(evidence.get("void_share"))
    build, hits = evidence.get("build"), _whole(evidence.get("hits"))
    if where not in PLACES or void is None or void > 1 or not isinstance(build, str) or hits is None:
        return None
    return RunEvidence(
        at=at,
        build=build,
        build_said=_text(evidence.get("build_said")),
        where=where,
        void_share=void,
        trials=tuple(filter(None, map(_trials, _list(evidence.get("trials"))))),
        surfacing=_surfacing(evidence.get("surfacing")),
        hits=hits,
        doubt=_text(evidence.get("doubt", doubt)),
    )


def _trials(row: object) -> Trials | None:
    if not isinstance(row, Mapping) or row.get("stratum") not in STRATA:
        return None
    count, weight = _whole(row.get("count")), _number(row.get("weight"))
    if count is None or weight is None:
        return None
    way = _text(row.get("mode")), _text(row.get("tail"))
    return Trials(row["stratum"], way, _text(row.get("replica")), count, min(weight, float(count)))


def _surfacing(rows: object) -> dict[Way, tuple[int, int]]:
    found: dict[Way, tuple[int, int]] = {}
    for row in _list(rows):
        if not isinstance(row, Mapping):
            continue
        surfaced, trials = _whole(row.get("surfaced")), _whole(row.get("trials"))
        if surfaced is None or trials is None or surfaced > trials:
            continue
        way = _text(row.get("mode")), _text(row.get("tail"))
        before = found.get(way, (0, 0))
        found[way] = before[0] + surfaced, before[1] + trials
    return found


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if fits and value >= 0 else None  # type: ignore[operator, arg-type]


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
