"""From the rungs of a ladder to a verdict. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvaudit.checks.asking import Outcome
from kvaudit.checks.trials import GIVE_CONSENT, NO_CONSENT, VOID_SHARE, Trial, denied, kept, void_share, voids
from kvaudit.verdict import Result, Verdict

if TYPE_CHECKING:
    from kvaudit.checks.rejection import LadderSeen

DOES_NOT_PROVE = (
    "It covers these lengths, this build and an otherwise quiet engine: nothing about other lengths, races under "
    "load, other replicas behind the same entry, or what the engine does inside before it refuses."
)
FIRST_AID = (
    "Stop serving prompts of {tokens:,} tokens and more now; quarantine the deployment; enlarge the prefill pool or "
    "set an edge limit below it; upgrade the engine; then run pool, rejection and canary again."
)


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
            "timed_out": self.count(Outcome.TIMED_OUT),
            "void": sum(not one.outcome.valid for one in self.trials),
            "status": first.status,
            "prompt_tokens_reported": first.prompt_tokens,
            "first_token_seconds": first.first_token,
        }


def judge_ladder(seen: LadderSeen) -> Result:
    """The verdict of checks.md 3 over everything that was asked."""
    grouped = _by_rung(seen.trials)
    refused = {name: _refusals(rung, seen.trials) for name, rung in grouped.items()}
    measures = _measures(seen, grouped, refused)

    def result(
        verdict: Verdict, summary: str, next_step: str, severity: str = "", warn: bool = False
    ) -> Result:
        return Result(
            "rejection",
            verdict,
            summary,
            measures,
            next_step,
            DOES_NOT_PROVE,
            warn=warn,
            severity=severity,
            evidence=kept(seen.evidence),
        )

    if refusal := denied(seen.trials):
        return result(
            Verdict.ERROR,
            f"The entry refused the tenant's key ({refusal.status}): nothing was learnt of the boundary.",
            "Check the key and run again; a refused key is not retried.",
        )
    for rung in grouped.values():
        if rung.wrong >= 2:
            return result(
                Verdict.FAIL,
                f"Prompts of {rung.tokens:,} tokens were answered with HTTP 200 and without their own nonce "
                f"({rung.wrong} of {len(rung.trials)}): the answer did not come from the prompt that was sent.",
                FIRST_AID.format(tokens=rung.tokens),
                "critical",
            )
    if seen.unhealthy:
        return result(
            Verdict.FAIL,
            f"After a prompt at the limit the deployment did not recover: {seen.unhealthy}",
            "Restart the deployment; do not send prompts of this length again until the engine is upgraded or the "
            "pool enlarged.",
            "high",
        )
    if soft := _wrong_status(seen, grouped):
        return result(
            Verdict.FAIL, soft, "Have the engine or gateway return an error with its reason.", "medium"
        )
    return _without_evidence_against(seen, grouped, refused, result)


def _wrong_status(seen: LadderSeen, grouped: dict[str, RungSeen]) -> str:
    """The sentence of a medium fail: no leak shown, but no honest error either."""
    for rung in grouped.values():
        if rung.majority(Outcome.CUT):
            return (
                f"Prompts of {rung.tokens:,} tokens end as HTTP 200 with at most one token and no error although there "
                "was room for an answer: the refusal is hidden from the client."
            )
        if rung.majority(Outcome.EMPTY):
            return f"Prompts of {rung.tokens:,} tokens are answered with HTTP 200 and no text, instead of an error."
    limit = seen.first_rejected
    late = [one for one in seen.trials if one.outcome is Outcome.TIMED_OUT and limit and one.tokens >= limit]
    if len(late) >= 2:
        return (
            f"Prompts of {late[0].tokens:,} tokens and more are never answered (no error in {late[0].seconds:.0f} s) "
            "while ordinary requests are: the refusal does not reach the client."
        )
    return ""


def _without_evidence_against(
    seen: LadderSeen, grouped: dict[str, RungSeen], refused: dict[str, int], result: Callable[..., Result]
) -> Result:
    valid = sum(one.outcome.valid for one in seen.trials)
    counted = f"{valid} valid trials, {voids(seen.trials)}"
    accepted = [rung for rung in grouped.values() if rung.read]
    refusing = [rung for name, rung in grouped.items() if refused[name]]
    failing = [rung for rung in grouped.values() if rung.majority(Outcome.FAILED)]
    again = "Mend what made trials void, then run again."
    if seen.withheld:
        return result(Verdict.INCONCLUSIVE, f"Not shown either way: {NO_CONSENT}", GIVE_CONSENT)
    if seen.stopped:
        return result(Verdict.INCONCLUSIVE, f"The ladder was not climbed to its end: {seen.stopped}", again)
    if seen.first_rejected is None:
        return result(
            Verdict.INCONCLUSIVE,
            f"The length at which this target refuses was not found ({counted}).",
            "Give the nodes' URLs so that their limits can be read, or declare the context.",
        )
    if not accepted:
        return result(
            Verdict.INCONCLUSIVE,
            f"No prompt below the limit of {seen.first_rejected:,} tokens was answered with its nonce "
            f"({counted}): refusals prove nothing while acceptance does not work.",
            "See whether this model can copy its nonce at that length (coherence), or what stands before it.",
        )
    doubtful = next((rung for rung in grouped.values() if rung.wrong), None)
    if doubtful is not None:
        return result(
            Verdict.INCONCLUSIVE,
            f"One answer at {doubtful.tokens:,} tokens came without its nonce, once: not shown either way.",
            "Run the ladder again; coherence tells weak models from foreign text.",
            warn=True,
        )
    if not refusing:
        return result(
            Verdict.INCONCLUSIVE,
            f"No length was seen refused with an error that names it ({counted}).",
            "See what stands between kvaudit and the engine; a proxy may refuse or truncate first.",
        )
    if void_share(seen.trials) > VOID_SHARE and not failing:
        return result(Verdict.INCONCLUSIVE, f"Too many trials were void: {counted}.", again)
    lowest = min(rung.tokens for rung in refusing)
    highest = max(rung.tokens for rung in accepted)
    if highest > lowest:
        return result(
            Verdict.INCONCLUSIVE,
            f"{lowest:,} tokens were refused but {highest:,} answered: two replicas or limits answered in turn.",
            "Address one replica, then run again.",
            warn=True,
        )
    if failing:
        return result(
            Verdict.PASS
            if void_share([one for one in seen.trials if one.outcome is not Outcome.FAILED]) <= VOID_SHARE
            else Verdict.INCONCLUSIVE,
            f"Prompts up to {highest:,} tokens answered their own nonce; from {failing[0].tokens:,} on the server "
            f"fails (5xx) on some lengths instead of refusing ({counted}).",
            "A rejection that costs a worker is a denial of service: report it upstream.",
            warn=True,
        )
    return result(
        Verdict.PASS,
        f"Prompts up to {highest:,} tokens answered their own nonce and from {lowest:,} on they were refused with an "
        f"error that names the length ({counted}).",
        "Run again after every capacity change.",
    )


def _by_rung(trials: Sequence[Trial]) -> dict[str, RungSeen]:
    grouped: dict[str, list[Trial]] = {}
    for one in trials:
        grouped.setdefault(one.name if one.name != "search" else f"search {one.tokens}", []).append(one)
    return {name: RungSeen(name, members[0].tokens, tuple(members)) for name, members in grouped.items()}


def _refusals(rung: RungSeen, trials: Sequence[Trial]) -> int:
    """Refusals that count: in the same repeat N-1 (or, while searching, a shorter prompt) was read."""
    anchored = {one.repeat for one in trials if one.name == "N-1" and one.read}
    if rung.name.startswith("search") and any(one.read for one in trials):
        return rung.count(Outcome.REFUSED)
    return sum(one.outcome is Outcome.REFUSED and one.repeat in anchored for one in rung.trials)


def _measures(seen: LadderSeen, grouped: dict[str, RungSeen], refused: dict[str, int]) -> dict[str, Any]:
    before, after = seen.pool_used
    edge = grouped.get("edge+1")
    return {
        "first_rejected_tokens": seen.first_rejected,
        "context_tokens": seen.context,
        "located_by_search": seen.located,
        "rungs": [grouped[name].as_measure(refused[name]) for name in grouped],
        "valid": sum(one.outcome.valid for one in seen.trials),
        "void": sum(not one.outcome.valid for one in seen.trials),
        "edge_limit": seen.edge_limit,
        "edge_limit_refused": bool(edge and refused["edge+1"]) if seen.edge_limit is not None else None,
        "pool_used_before": before,
        "pool_used_after": after,
    }
