"""Counts a canary run by what was drawn, for the verdict's bound and the page's matrix. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kvaudit.auditor.checks.canary.design import PHRASES, SURFACING
from kvaudit.auditor.checks.canary.seen import Asked, CanarySeen
from kvaudit.auditor.checks.evidence_source import WITHOUT_NONCE
from kvaudit.auditor.checks.prober_protocol import Outcome
from kvaudit.auditor.stats.bounds import lower_bound


@dataclass(frozen=True, slots=True)
class Surfacing:
    """How often answers of one way and tail gave the own phrase, as a stranger's pages would have given theirs."""

    trials: int
    surfaced: int

    @property
    def share(self) -> float:
        return self.surfaced / self.trials if self.trials else 0.0

    @property
    def at_least(self) -> float:
        """With 95 % confidence: a share estimated from ten trials would let one leak in thirteen through."""
        return lower_bound(self.surfaced, self.trials)


def surfacing_of(asked: Iterable[Asked]) -> dict[tuple[str, str], Surfacing]:
    """(mode, tail) -> measured over every answer with room for a phrase, those of the rounds as well; in an empty one
    nothing surfaces."""
    counted: dict[tuple[str, str], list[bool]] = {}
    for one in asked:
        if one.trial.outcome in (Outcome.ANSWERED, Outcome.EMPTY) and not one.trial.cramped:
            counted.setdefault((one.mode, one.tail), []).append(one.surfaced)
    return {key: Surfacing(len(found), sum(found)) for key, found in sorted(counted.items())}


def together(found: dict[tuple[str, str], Surfacing]) -> Surfacing:
    """All ways, of the prompts that were asked for their phrase."""
    of = [one for (_, tail), one in found.items() if tail in PHRASES]
    return Surfacing(sum(one.trials for one in of), sum(one.surfaced for one in of))


def accepted(seen: CanarySeen) -> list[Asked]:
    """The trial of each round whose drawn request was answered: requests of one burst are not independent."""
    return [one for one in seen.asked if one.drawn and one.trial.outcome is Outcome.ANSWERED]


def rows(seen: CanarySeen) -> list[dict[str, Any]]:
    """Per kind of request: how its requests ended, for the page's matrix of lengths and rounds, and the same by route
    and tail. ``rounds`` holds one word a round (None = not asked), the worst where a suspicion was repeated: an
    `Outcome` or "without nonce"."""
    found: dict[str, list[Asked]] = {}
    for one in seen.asked:
        if one.trial.name != SURFACING:
            found.setdefault(one.trial.name, []).append(one)
    return [_row(cell, asked, seen) for cell, asked in found.items()]


def _row(cell: str, asked: Sequence[Asked], seen: CanarySeen) -> dict[str, Any]:
    tokens = [one.trial.tokens for one in asked]
    outcomes: dict[str, int] = {}
    for one in asked:
        outcomes[one.trial.outcome.value] = outcomes.get(one.trial.outcome.value, 0) + 1
    told = (Outcome.ANSWERED, Outcome.REFUSED)
    return {
        "cell": cell,
        "tokens": max(tokens),
        "shortest": min(tokens),
        "lengths": sorted({one.trial.tokens for one in asked if one.trial.outcome in told}),
        "outcomes": outcomes,
        "hits": sum(hit.verified and hit.cell == cell for hit in seen.sightings),
        "rounds": _by_round(asked),
        "strata": _strata(cell, asked, seen),
    }


def _by_round(asked: Sequence[Asked]) -> list[str | None]:
    said: list[str | None] = []
    for one in asked:
        trial = one.trial
        said.extend([None] * (trial.repeat + 1 - len(said)))
        if said[trial.repeat] is None or trial.wrong:
            said[trial.repeat] = WITHOUT_NONCE if trial.wrong else trial.outcome.value
    return said


def _strata(cell: str, asked: Sequence[Asked], seen: CanarySeen) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], list[Asked]] = {}
    for one in asked:
        found.setdefault((one.route, one.tail), []).append(one)
    return [
        {
            "route": route,
            "tail": tail,
            "asked": len(of),
            "accepted": sum(one.trial.outcome is Outcome.ANSWERED for one in of),
            "read": sum(one.trial.nonce is True for one in of),
            "missed": sum(one.trial.wrong for one in of),
            "hits": sum(
                hit.verified and (hit.cell, hit.route, hit.tail) == (cell, route, tail)
                for hit in seen.sightings
            ),
        }
        for (route, tail), of in sorted(found.items())
    ]
