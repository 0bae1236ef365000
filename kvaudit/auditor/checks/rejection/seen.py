"""What a climb of the ladder saw, as the verdict reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kvaudit.auditor.checks.asker import FOLLOWING_UP
from kvaudit.auditor.checks.misses import MissKind
from kvaudit.auditor.checks.misses_by_way import MissesByWay
from kvaudit.auditor.checks.prober_protocol import Outcome
from kvaudit.auditor.checks.trials import Trial, voids
from kvaudit.auditor.checks.ways import asked_as
from kvaudit.auditor.verdict import Evidence

SEARCH = "search"
"""Name of trials that look for an unknown limit."""


@dataclass(slots=True)
class LadderSeen:
    """The climb. ``first_rejected`` is N in tokens, given or found; ``unhealthy`` the sentence of the
    health check that failed after a refusal; ``stopped`` why the climb ended early."""

    first_rejected: int | None
    context: int | None
    trials: list[Trial] = field(default_factory=list)
    misses: MissesByWay = field(default_factory=MissesByWay)
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

    def above(self, tokens: int) -> bool:
        """Whether a prompt of this length should be refused; False while the limit is not known."""
        return self.first_rejected is not None and tokens >= self.first_rejected


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

    @property
    def others_text(self) -> bool:
        """Whether what came back was planted in other requests: a run of marker words, or two different answers."""
        traces = [trace for one in self.trials for trace in one.traces if not trace.decoy]
        return any(trace.verified for trace in traces) or len({trace.words for trace in traces}) >= 2

    @property
    def unread(self) -> RungSeen | None:
        """The trials of one way that were mostly answered from something else: the other ways may be right."""
        for way in dict.fromkeys(one.way for one in self.trials):
            asked = tuple(one for one in self.trials if one.way == way)
            if mostly_wrong(asked):
                return replace(self, trials=asked)
        return None

    @property
    def way(self) -> str:
        """ ", asked as chat with text, whole" where all were and the route is known."""
        ways = {one.way for one in self.trials}
        return f", asked as {next(iter(ways))}" if len(ways) == 1 and ways != {""} else ""

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
            "hidden": self.count(Outcome.HIDDEN),
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
    """The trials of a climb, read together by rung. Short controls and identical repeats belong to none."""

    def __init__(self, seen: LadderSeen) -> None:
        self.seen, self.trials, self.limit = seen, seen.trials, seen.first_rejected
        self.rungs = _by_rung([one for one in seen.trials if one.name not in FOLLOWING_UP])
        self.refused = {rung.name: _refusals(rung, seen.trials) for rung in self.rungs}
        self.counted = f"{sum(one.outcome.valid for one in seen.trials)} valid trials, {voids(seen.trials)}"
        self.accepted = [rung for rung in self.rungs if rung.read]
        self.refusing = [rung for rung in self.rungs if self.refused[rung.name]]
        self.failing = [rung for rung in self.rungs if rung.majority(Outcome.FAILED)]

    @property
    def unread(self) -> RungSeen | None:
        """A length at or above the limit that was answered from something else, twice. Below it a model may be weak,
        so there its answers must hold others' text."""
        for rung in self.rungs:
            unread = rung.unread
            if unread is not None and (self.seen.above(rung.tokens) or unread.others_text):
                return unread
        return None

    @property
    def missed_above(self) -> list[RungSeen]:
        """Lengths at or above the limit, or where it may lie, with an answer that lacks its nonce and is not its
        prompt's fault."""
        explained = {id(miss.first) for miss in self.seen.misses.found if miss.kind is MissKind.EXPLAINED}
        return [
            rung
            for rung in self.rungs
            if self.seen.above(rung.tokens)
            and any(one.wrong and id(one) not in explained for one in rung.trials)
        ]

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
            f"refused with an error that names the length ({self.counted}).{self.seen.misses.said}"
            f"{asked_as(self.trials)}{self.seen.misses.unheard}"
        )


def _by_rung(trials: Sequence[Trial]) -> list[RungSeen]:
    grouped: dict[str, list[Trial]] = {}
    for one in trials:
        grouped.setdefault(one.name if one.name != SEARCH else f"{SEARCH} {one.tokens}", []).append(one)
    return [RungSeen(name, members[0].tokens, tuple(members)) for name, members in grouped.items()]


def _refusals(rung: RungSeen, trials: Sequence[Trial]) -> int:
    """Refusals that count: in the same repeat N-1 (or, while searching, a shorter prompt) was read."""
    anchored = {one.repeat for one in trials if one.name == "N-1" and one.read}
    if rung.name.startswith(SEARCH) and any(one.read for one in trials):
        return rung.count(Outcome.REFUSED)
    return sum(one.outcome is Outcome.REFUSED and one.repeat in anchored for one in rung.trials)
