"""From the rungs of a ladder to a verdict. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvaudit.auditor.checks.prober_protocol import Outcome
from kvaudit.auditor.checks.rejection.seen import LadderSeen, RungSeen, mostly_wrong, stranded
from kvaudit.auditor.checks.trials import (
    GIVE_CONSENT,
    NO_CONSENT,
    VOID_SHARE,
    Trial,
    denied,
    needed,
    saying,
    unfinished,
    void_share,
    voids,
)
from kvaudit.auditor.verdict import Result, Verdict

DOES_NOT_PROVE = (
    "It covers these lengths, this build and an otherwise quiet engine: nothing about other lengths, races under "
    "load, other replicas behind the same entry, or what the engine does inside before it refuses."
)
TOLERATING = 10
"""Of this many answers at an accepted length one may miss its nonce: models are weak now and then."""

FIRST_AID = (
    "Stop serving prompts of {tokens:,} tokens and more now; quarantine the deployment; enlarge the prefill pool or "
    "set an edge limit below it; upgrade the engine; then run pool, rejection and canary again."
)


def judge_ladder(seen: LadderSeen) -> Result:
    """The verdict of checks.md 3 over everything that was asked."""
    grouped = _by_rung(seen.trials)
    refused = {name: _refusals(rung, seen.trials) for name, rung in grouped.items()}
    measures = _measures(seen, grouped, refused)

    result = saying("rejection", measures, DOES_NOT_PROVE, seen.evidence)

    if refusal := denied(seen.trials):
        return result(
            Verdict.ERROR,
            f"The entry refused the tenant's key ({refusal.status}): nothing was learnt of the boundary.",
            "Check the key and run again; a refused key is not retried.",
        )
    for rung in grouped.values():
        if mostly_wrong(rung.trials):
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
    if stranded(seen) and _rising(seen):
        return result(
            Verdict.FAIL,
            "Refused prompts keep pages: three runs in a row found more of the pool in use with nothing running "
            f"({measures['pool_use_after']:g} now). The pool shrinks with every refusal.",
            "Restart in a window and report the leak upstream with these numbers; the pool check will fail next.",
            "high",
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
    late = [one for one in seen.trials if one.late and limit and one.tokens >= limit]
    if len(late) >= 2:
        how = (
            f"are never answered (no error in {late[0].seconds:.0f} s)"
            if late[0].outcome is Outcome.TIMED_OUT
            else f"wait {late[0].seconds:.0f} s and then end in an internal time-out ({late[0].status})"
        )
        return (
            f"Prompts of {late[0].tokens:,} tokens and more {how} while ordinary requests are answered: the refusal "
            "does not reach the client."
        )
    for rung in grouped.values():
        short = [one for one in rung.trials if one.read and one.usage_right is False]
        if len(short) >= 2:
            return (
                f"Prompts of {rung.tokens:,} tokens are answered from a part of themselves: {short[0].prompt_tokens:,} "
                "tokens were counted. The target shortens long prompts without an error."
            )
    return ""


def _rising(seen: LadderSeen) -> bool:
    """Whether this run and the two before it found more and more of the pool in use."""
    after = sum(seen.pool_after.values())
    last = [*seen.earlier_use[-2:], after]
    return len(last) == 3 and last[0] < last[1] < last[2]


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
        asked = {(one.name, one.repeat) for one in seen.trials if one.name != "search"}
        said = unfinished(len(asked), seen.planned, "trials", seen.stopped)
        return result(
            Verdict.INCONCLUSIVE, f"The ladder was not climbed to its end: {said}", needed(seen.stopped)
        )
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
    doubtful = [rung for rung in grouped.values() if rung.wrong]
    for rung in doubtful:
        beyond = rung.tokens >= seen.first_rejected
        if beyond or rung.wrong > 1 or len(rung.trials) < TOLERATING:
            return result(
                Verdict.INCONCLUSIVE,
                f"{rung.wrong} of {len(rung.trials)} answers at {rung.tokens:,} tokens came without their nonce: too "
                "few for a leak at every prompt, too many for none.",
                "Run the ladder again; coherence tells weak models from foreign text.",
                warn=True,
            )
    if not refusing:
        return result(
            Verdict.INCONCLUSIVE,
            f"No length was seen refused with an error that names it ({counted}).",
            "See what stands between kvaudit and the engine; a proxy may refuse or truncate first.",
        )
    proxied = next((one for one in seen.trials if _proxied(one, seen.first_rejected)), None)
    if proxied is not None:
        return result(
            Verdict.INCONCLUSIVE,
            f"A prompt of {proxied.tokens:,} tokens, below the limit, was refused with 413 by something before the "
            "engine: the engine was never reached at that length.",
            "Raise the body limit of the proxy (a token takes up to 8 bytes), or declare its limit as the edge limit.",
        )
    if void_share(seen.trials) > VOID_SHARE:
        if failing:
            return result(
                Verdict.INCONCLUSIVE,
                f"Prompts of {failing[0].tokens:,} tokens end in server errors (5xx) instead of a refusal ({counted}).",
                "A rejection that costs a worker is a denial of service: report it upstream, then run again.",
                warn=True,
            )
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
    climbed = (
        f"Prompts up to {highest:,} tokens answered their own nonce and from {lowest:,} on they were refused with an "
        f"error that names the length ({counted})."
    )
    if left := stranded(seen):
        return result(
            Verdict.INCONCLUSIVE,
            f"{climbed} But {left:g} of the pool stayed in use, a minute after the last prompt, with nothing running; "
            "three such runs in a row that rise are a fail.",
            "Watch the pool's use; a refusal that keeps its pages shrinks the pool until nothing fits.",
            warn=True,
        )
    if doubtful:
        rung = doubtful[0]
        return result(
            Verdict.PASS,
            f"{climbed} One of {len(rung.trials)} answers at {rung.tokens:,} tokens missed its nonce.",
            "Coherence tells weak models from foreign text.",
            warn=True,
        )
    if failing:
        return result(
            Verdict.PASS,
            f"{climbed} At {failing[0].tokens:,} tokens the server failed (5xx) instead of refusing.",
            "A rejection that costs a worker is a denial of service: report it upstream.",
            warn=True,
        )
    return result(Verdict.PASS, climbed, "Run again after every capacity change.")


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


def _proxied(one: Trial, limit: int | None) -> bool:
    return one.outcome is Outcome.TOO_LARGE and limit is not None and one.tokens < limit


def _measures(seen: LadderSeen, grouped: dict[str, RungSeen], refused: dict[str, int]) -> dict[str, Any]:
    edge = seen.edge_limit + 1 if seen.edge_limit is not None else None
    beyond = [name for name, rung in grouped.items() if rung.tokens == edge]
    return {
        "first_rejected_tokens": seen.first_rejected,
        "context_tokens": seen.context,
        "located_by_search": seen.located,
        "rungs": [grouped[name].as_measure(refused[name]) for name in grouped],
        "valid": sum(one.outcome.valid for one in seen.trials),
        "void": sum(not one.outcome.valid for one in seen.trials),
        "edge_limit": seen.edge_limit,
        "edge_limit_refused": any(refused[name] for name in beyond) if edge is not None else None,
        "pool_use_before": sum(seen.pool_before.values()) if seen.pool_before else None,
        "pool_use_after": sum(seen.pool_after.values()) if seen.pool_after else None,
        "pool_left_behind": stranded(seen),
    }
