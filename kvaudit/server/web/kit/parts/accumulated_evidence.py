"""The way to green of a check whose evidence adds up over runs: how far it is, what brings the rest, where trials come
from. templates/kit/accumulated_evidence.html draws it, on the deployment and on each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kvaudit.auditor.stats.accumulated_said import PLACES_SAID, percent
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.models import Result
from kvaudit.server.audits.state.standing import KEY
from kvaudit.server.web.kit.measure_values import count, real, rows

NEEDS_SAID = {
    "total": "All lengths",
    "boundary": "The boundary by itself",
    "fresh": "In production",
}


@dataclass(frozen=True, slots=True)
class Need:
    """A sum of effective trials within so many days, and what it has to reach."""

    name: str
    days: int
    has: float
    needs: float

    @property
    def verdict(self) -> Verdict:
        return Verdict.PASS if self.has >= self.needs else Verdict.INCONCLUSIVE


@dataclass(frozen=True, slots=True)
class StratumLine:
    """Effective trials at lengths of one kind, and the share of such requests that may leak, in words or ""."""

    name: str
    trials: float
    bound: str


@dataclass(frozen=True, slots=True)
class AccumulatedEvidence:
    """Bounds are shares in words, "" where nothing is bounded."""

    verdict: Verdict
    sentence: str
    next_step: str
    build: str
    bound: str
    together: str  # of every kind of length at once
    of_replicas: str
    of_runs: str
    needs: Sequence[Need]
    strata: Sequence[StratumLine]
    places: Sequence[tuple[str, float]]
    replicas: int
    runs: int
    a_night: float
    expires_at: datetime | None


def accumulated_of(result: Result | None) -> AccumulatedEvidence | None:
    """None where nothing adds up: of other checks, and of results from before evidence was kept."""
    told = result.measures.get(KEY) if result is not None and isinstance(result.measures, dict) else None
    if not isinstance(told, Mapping):
        return None
    needs = [need for each in rows(told.get("needs")) if (need := _need(each)) is not None]
    places = told.get("places")
    found = places if isinstance(places, Mapping) else {}
    return AccumulatedEvidence(
        verdict=Verdict.parse(told.get("verdict")),
        sentence=_text(told.get("summary")),
        next_step=_text(told.get("next")),
        build=_text(told.get("build_said")),
        bound=_bound(told.get("bound")),
        together=_bound(told.get("bound_of_each_stratum")),
        of_replicas=_bound(told.get("bound_of_replicas")),
        of_runs=_bound(told.get("bound_of_runs")),
        needs=needs,
        strata=[
            StratumLine(
                _text(each.get("stratum")), real(each.get("trials")) or 0.0, _bound(each.get("bound"))
            )
            for each in rows(told.get("strata"))
        ],
        places=[(said, trials) for name, said in PLACES_SAID.items() if (trials := real(found.get(name)))],
        replicas=count(told.get("replicas")) or 0,
        runs=count(told.get("runs")) or 0,
        a_night=real(told.get("a_night")) or 0.0,
        expires_at=_moment(told.get("expires_at")),
    )


def _need(each: Mapping[str, Any]) -> Need | None:
    name, days = NEEDS_SAID.get(_text(each.get("key"))), count(each.get("days"))
    has, needs = real(each.get("has")), real(each.get("needs"))
    return (
        None if name is None or days is None or has is None or needs is None else Need(name, days, has, needs)
    )


def _bound(value: Any) -> str:
    share = real(value)
    return "" if share is None or not 0 <= share < 1 else percent(share)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _moment(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(_text(value))
    except ValueError:
        return None
