"""What a climb of the ladder saw, as the verdict reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvaudit.auditor.checks.prober_protocol import Outcome
from kvaudit.auditor.checks.trials import Trial, voids
from kvaudit.auditor.verdict import Evidence


@dataclass(slots=True)
class LadderSeen:
    """The climb. ``first_rejected`` is N in tokens, given or found; ``unhealthy`` the sentence of the
    health check that failed after a refusal; ``stopped`` why the climb ended early."""

    first_rejected: int | None
    context: int | None
    trials: list[Trial] = field(default_factory=list)
    located: bool = False
    planned: int = 0  # trials of all rungs, repeats of doubtful ones aside; 0 while the limit is searched
    unhealthy: str = ""
    stopped: str = ""
    edge_limit: int | None = None
    pool_before: Mapping[str, float] = field(default_factory=dict)  # node -> use; empty = not shown
    pool_after: Mapping[str, float] = field(default_factory=dict)  # once nothing ran any more
    page: int = 64
    earlier_use: Sequence[float] = ()  # what earlier runs found left in use, oldest first
    evidence: list[Evidence] = field(default_factory=list)
    withheld: bool = False
    unaskable: bool = False


@dataclass(frozen=True, slots=True)
class RungSeen:
    """All trials of one length, and how they read together."""

    name: str
    tokens: int
    trials: tuple[Trial, ...]

    def count(self, *outcomes: Outcome) -> int:
        return sum(one.outcome in outcomes for one in self.trials)

    @property
    def wrong(self) -> int:
        return sum(one.wrong for one in self.trials)

    @property
    def read(self) -> int:
        return sum(one.read and one.usage_right is not False for one in self.trials)

    def majority(self, *outcomes: Outcome) -> bool:
        """Two of three; a single trial decides nothing."""
        return self.count(*outcomes) >= 2

    def as_measure(self, refused: int) -> dict[str, Any]:
        first = self.trials[0]
        return {
            "name": self.name,
            "tokens": self.tokens,
            "trials": len(self.trials),
            "accepted": self.read,
            "refused": refused,
            "without_nonce": self.wrong,
            "empty": self.count(Outcome.EMPTY),
            "cut": self.count(Outcome.CUT),
            "failed": self.count(Outcome.FAILED),
            "timed_out": sum(one.late for one in self.trials),
            "void": sum(not one.outcome.valid for one in self.trials),
            "status": first.status,
            "prompt_tokens_reported": first.prompt_tokens,
            "first_token_seconds": first.first_token,
        }


def mostly_wrong(trials: Sequence[Trial]) -> bool:
    """At least two answers of one length without their nonce, and two of three of those that answered."""
    wrong = sum(one.wrong for one in trials)
    answered = sum(one.outcome is Outcome.ANSWERED for one in trials)
    return wrong >= 2 and 3 * wrong >= 2 * answered


def stranded(seen: LadderSeen) -> float | None:
    """Pool use that stayed behind, summed over the nodes, in their unit; None where it is not shown.
    Within 2 % of what was used before, or a page (or half a percent of a pool shown as a share), is nothing."""
    both = [
        (seen.pool_before[node], after) for node, after in seen.pool_after.items() if node in seen.pool_before
    ]
    if not both:
        return None
    shares = all(0 <= value <= 1 for pair in both for value in pair)
    least = 0.005 if shares else float(seen.page)
    return sum(after - before for before, after in both if after - before > max(least, 0.02 * before))


class Ladder:
    """The trials of a climb, read together by rung."""

    def __init__(self, seen: LadderSeen) -> None:
        self.seen, self.trials = seen, seen.trials
        self.limit = seen.first_rejected
        self.rungs = _by_rung(seen.trials)
        self.refused = {rung.name: _refusals(rung, seen.trials) for rung in self.rungs}
        self.counted = f"{sum(one.outcome.valid for one in seen.trials)} valid trials, {voids(seen.trials)}"
        self.accepted = [rung for rung in self.rungs if rung.read]
        self.refusing = [rung for rung in self.rungs if self.refused[rung.name]]
        self.failing = [rung for rung in self.rungs if rung.majority(Outcome.FAILED)]
        self.doubtful = [rung for rung in self.rungs if rung.wrong]
        self.unread = next((rung for rung in self.rungs if mostly_wrong(rung.trials)), None)

    @property
    def highest(self) -> int:
        return max(rung.tokens for rung in self.accepted)

    @property
    def lowest(self) -> int:
        return min(rung.tokens for rung in self.refusing)

    @property
    def climbed(self) -> str:
        return (
            f"Prompts up to {self.highest:,} tokens answered their own nonce and from {self.lowest:,} on they were "
            f"refused with an error that names the length ({self.counted})."
        )


def _by_rung(trials: Sequence[Trial]) -> list[RungSeen]:
    grouped: dict[str, list[Trial]] = {}
    for one in trials:
        grouped.setdefault(one.name if one.name != "search" else f"search {one.tokens}", []).append(one)
    return [RungSeen(name, members[0].tokens, tuple(members)) for name, members in grouped.items()]


def _refusals(rung: RungSeen, trials: Sequence[Trial]) -> int:
    """Refusals that count: in the same repeat N-1 (or, while searching, a shorter prompt) was read."""
    anchored = {one.repeat for one in trials if one.name == "N-1" and one.read}
    if rung.name.startswith("search") and any(one.read for one in trials):
        return rung.count(Outcome.REFUSED)
    return sum(one.outcome is Outcome.REFUSED and one.repeat in anchored for one in rung.trials)
