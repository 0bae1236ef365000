"""Judges how each length around the limit was answered. Pure: no clock, no network. `RULES` says what decides
before what (checks.md 3)."""

from __future__ import annotations

from typing import Any

from kvaudit.auditor.checks.prober_protocol import Outcome
from kvaudit.auditor.checks.rejection.seen import Ladder, LadderSeen, stranded
from kvaudit.auditor.checks.rules import Rule, first_that_holds
from kvaudit.auditor.checks.trials import (
    CHECK_THE_KEY,
    GIVE_CONSENT,
    NO_CONSENT,
    VOID_SHARE,
    key_refused,
    needed,
    result_builder,
    unfinished,
    void_share,
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
    ladder = Ladder(seen)
    result = result_builder("rejection", _measures(ladder), DOES_NOT_PROVE, seen.evidence)
    return first_that_holds(RULES, ladder, result)


def _read_something_else(ladder: Ladder) -> str:
    rung = ladder.unread
    if rung is None:
        return ""
    return (
        f"Prompts of {rung.tokens:,} tokens were answered with HTTP 200 and without their own nonce "
        f"({rung.wrong} of {len(rung.trials)}): the answer did not come from the prompt that was sent."
    )


def _first_aid(ladder: Ladder) -> str:
    return FIRST_AID.format(tokens=ladder.unread.tokens if ladder.unread else 0)


def _unhealthy(ladder: Ladder) -> str:
    unhealthy = ladder.seen.unhealthy
    return f"After a prompt at the limit the deployment did not recover: {unhealthy}" if unhealthy else ""


def _no_honest_error(ladder: Ladder) -> str:
    for rung in ladder.rungs:
        if rung.majority(Outcome.CUT):
            return (
                f"Prompts of {rung.tokens:,} tokens end as HTTP 200 with at most one token and no error although there "
                "was room for an answer: the refusal is hidden from the client."
            )
        if rung.majority(Outcome.EMPTY):
            return f"Prompts of {rung.tokens:,} tokens are answered with HTTP 200 and no text, instead of an error."
    return ""


def _never_answered(ladder: Ladder) -> str:
    limit = ladder.limit
    late = [one for one in ladder.trials if one.late and limit and one.tokens >= limit]
    if len(late) < 2:
        return ""
    how = (
        f"are never answered (no error in {late[0].seconds:.0f} s)"
        if late[0].outcome is Outcome.TIMED_OUT
        else f"wait {late[0].seconds:.0f} s and then end in an internal time-out ({late[0].status})"
    )
    return (
        f"Prompts of {late[0].tokens:,} tokens and more {how} while ordinary requests are answered: the refusal "
        "does not reach the client."
    )


def _shortened(ladder: Ladder) -> str:
    for rung in ladder.rungs:
        short = [one for one in rung.trials if one.read and one.usage_right is False]
        if len(short) >= 2:
            return (
                f"Prompts of {rung.tokens:,} tokens are answered from a part of themselves: {short[0].prompt_tokens:,} "
                "tokens were counted. The target shortens long prompts without an error."
            )
    return ""


def _pool_shrinks(ladder: Ladder) -> str:
    """Pages stayed behind, and this run and the two before it found more and more of the pool in use."""
    after = sum(ladder.seen.pool_after.values())
    last = [*ladder.seen.earlier_use[-2:], after]
    if not stranded(ladder.seen) or len(last) != 3 or not last[0] < last[1] < last[2]:
        return ""
    return (
        "Refused prompts keep pages: three runs in a row found more of the pool in use with nothing running "
        f"({after:g} now). The pool shrinks with every refusal."
    )


def _withheld(ladder: Ladder) -> str:
    return f"Not shown either way: {NO_CONSENT}" if ladder.seen.withheld else ""


def _stopped(ladder: Ladder) -> str:
    seen = ladder.seen
    if not seen.stopped:
        return ""
    asked = {(one.name, one.repeat) for one in seen.trials if one.name != "search"}
    return f"The ladder was not climbed to its end: {unfinished(len(asked), seen.planned, 'trials', seen.stopped)}"


def _no_limit(ladder: Ladder) -> str:
    if ladder.limit is not None:
        return ""
    return f"The length at which this target refuses was not found ({ladder.counted})."


def _nothing_accepted(ladder: Ladder) -> str:
    if ladder.accepted:
        return ""
    return (
        f"No prompt below the limit of {ladder.limit:,} tokens was answered with its nonce ({ladder.counted}): "
        "refusals prove nothing while acceptance does not work."
    )


def _doubtful(ladder: Ladder) -> str:
    for rung in ladder.doubtful:
        beyond = ladder.limit is not None and rung.tokens >= ladder.limit
        if beyond or rung.wrong > 1 or len(rung.trials) < TOLERATING:
            return (
                f"{rung.wrong} of {len(rung.trials)} answers at {rung.tokens:,} tokens came without their nonce: too "
                "few for a leak at every prompt, too many for none."
            )
    return ""


def _nothing_refused(ladder: Ladder) -> str:
    if ladder.refusing:
        return ""
    return f"No length was seen refused with an error that names it ({ladder.counted})."


def _refused_before_the_engine(ladder: Ladder) -> str:
    limit = ladder.limit or 0
    for one in ladder.trials:
        if one.outcome is Outcome.TOO_LARGE and one.tokens < limit:
            return (
                f"A prompt of {one.tokens:,} tokens, below the limit, was refused with 413 by something before the "
                "engine: the engine was never reached at that length."
            )
    return ""


def _server_fails(ladder: Ladder) -> str:
    if void_share(ladder.trials) <= VOID_SHARE or not ladder.failing:
        return ""
    tokens = ladder.failing[0].tokens
    return f"Prompts of {tokens:,} tokens end in server errors (5xx) instead of a refusal ({ladder.counted})."


def _void(ladder: Ladder) -> str:
    return f"Too many trials were void: {ladder.counted}." if void_share(ladder.trials) > VOID_SHARE else ""


def _two_limits(ladder: Ladder) -> str:
    if ladder.highest <= ladder.lowest:
        return ""
    return (
        f"{ladder.lowest:,} tokens were refused but {ladder.highest:,} answered: two replicas or limits answered in "
        "turn."
    )


def _pages_left(ladder: Ladder) -> str:
    if not (left := stranded(ladder.seen)):
        return ""
    return (
        f"{ladder.climbed} But {left:g} of the pool stayed in use, a minute after the last prompt, with nothing "
        "running; three such runs in a row that rise are a fail."
    )


def _one_missed(ladder: Ladder) -> str:
    if not ladder.doubtful:
        return ""
    rung = ladder.doubtful[0]
    return f"{ladder.climbed} One of {len(rung.trials)} answers at {rung.tokens:,} tokens missed its nonce."


def _some_failed(ladder: Ladder) -> str:
    if not ladder.failing:
        return ""
    return f"{ladder.climbed} At {ladder.failing[0].tokens:,} tokens the server failed (5xx) instead of refusing."


ERROR, FAIL, OPEN, PASS = Verdict.ERROR, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS
_HONEST = "Have the engine or gateway return an error with its reason."

RULES: tuple[Rule[Ladder], ...] = (
    Rule("key refused", ERROR, lambda ladder: key_refused(ladder.trials), CHECK_THE_KEY),
    # What was seen stands, however the climb went on.
    Rule("read something else", FAIL, _read_something_else, _first_aid, "critical"),
    Rule("unhealthy", FAIL, _unhealthy, "Restart the deployment; do not send prompts of this length again until the "
         "engine is upgraded or the pool enlarged.", "high"),
    Rule("no honest error", FAIL, _no_honest_error, _HONEST, "medium"),
    Rule("never answered", FAIL, _never_answered, _HONEST, "medium"),
    Rule("shortened", FAIL, _shortened, _HONEST, "medium"),
    Rule("pool shrinks", FAIL, _pool_shrinks, "Restart in a window and report the leak upstream with these numbers; "
         "the pool check will fail next.", "high"),
    # From here on nothing was seen against the target. Was enough seen for it?
    Rule("withheld", OPEN, _withheld, GIVE_CONSENT),
    Rule("stopped", OPEN, _stopped, lambda ladder: needed(ladder.seen.stopped)),
    Rule("no limit", OPEN, _no_limit, "Give the nodes' URLs so that their limits can be read, or declare the context."),
    Rule("nothing accepted", OPEN, _nothing_accepted, "See whether this model can copy its nonce at that length "
         "(coherence), or what stands before it."),
    Rule("doubtful", OPEN, _doubtful, "Run the ladder again; coherence tells weak models from foreign text.",
         warn=True),
    Rule("nothing refused", OPEN, _nothing_refused, "See what stands between kvaudit and the engine; a proxy may "
         "refuse or truncate first."),
    Rule("refused before the engine", OPEN, _refused_before_the_engine, "Raise the body limit of the proxy (a token "
         "takes up to 8 bytes), or declare its limit as the edge limit."),
    Rule("server fails", OPEN, _server_fails, "A rejection that costs a worker is a denial of service: report it "
         "upstream, then run again.", warn=True),
    Rule("void", OPEN, _void, "Mend what made trials void, then run again."),
    Rule("two limits", OPEN, _two_limits, "Address one replica, then run again.", warn=True),
    Rule("pages left", OPEN, _pages_left, "Watch the pool's use; a refusal that keeps its pages shrinks the pool until "
         "nothing fits.", warn=True),
    Rule("one missed", PASS, _one_missed, "Coherence tells weak models from foreign text.", warn=True),
    Rule("some failed", PASS, _some_failed, "A rejection that costs a worker is a denial of service: report it "
         "upstream.", warn=True),
    Rule("climbed", PASS, lambda ladder: ladder.climbed, "Run again after every capacity change."),
)  # fmt: skip


def _measures(ladder: Ladder) -> dict[str, Any]:
    seen = ladder.seen
    edge = seen.edge_limit + 1 if seen.edge_limit is not None else None
    beyond = [rung.name for rung in ladder.rungs if rung.tokens == edge]
    return {
        "first_rejected_tokens": seen.first_rejected,
        "context_tokens": seen.context,
        "located_by_search": seen.located,
        "rungs": [rung.as_measure(ladder.refused[rung.name]) for rung in ladder.rungs],
        "valid": sum(one.outcome.valid for one in seen.trials),
        "void": sum(not one.outcome.valid for one in seen.trials),
        "edge_limit": seen.edge_limit,
        "edge_limit_refused": any(ladder.refused[name] for name in beyond) if edge is not None else None,
        "pool_use_before": sum(seen.pool_before.values()) if seen.pool_before else None,
        "pool_use_after": sum(seen.pool_after.values()) if seen.pool_after else None,
        "pool_left_behind": stranded(seen),
    }
