"""Says what a climb of the ladder showed, one sentence a finding; "" where it did not. `verdict` orders them."""

from __future__ import annotations

from kvaudit.auditor.checks.asker import CONTROL, CONTROL_TOKENS, ROOMS
from kvaudit.auditor.checks.prober_protocol import Outcome
from kvaudit.auditor.checks.rejection.seen import Ladder, RungSeen, stranded
from kvaudit.auditor.checks.trials import NO_CONSENT, VOID_SHARE, key_refused, unfinished, void_share

FIRST_AID = (
    "Stop serving prompts of {tokens:,} tokens and more now; quarantine the deployment; enlarge the prefill pool or "
    "set an edge limit below it; upgrade the engine; then run pool, rejection and canary again."
)


def read_something_else(ladder: Ladder) -> str:
    rung = ladder.unread
    if rung is None:
        return ""
    return (
        f"Prompts of {rung.tokens:,} tokens were answered with HTTP 200 and without their own nonce "
        f"({rung.wrong} of {len(rung.trials)}{rung.way}): the answer did not come from the prompt that was sent."
    )


def first_aid(ladder: Ladder) -> str:
    return FIRST_AID.format(tokens=ladder.unread.tokens if ladder.unread else 0)


def unhealthy(ladder: Ladder) -> str:
    """Whom the target no longer lets in cannot say how it is."""
    unhealthy = "" if key_refused(ladder.trials) else ladder.seen.unhealthy
    return f"After a prompt at the limit the deployment did not recover: {unhealthy}" if unhealthy else ""


def no_honest_error(ladder: Ladder) -> str:
    for rung in ladder.rungs:
        if rung.majority(Outcome.CUT):
            return (
                f"Prompts of {rung.tokens:,} tokens end as HTTP 200 with at most one token and no error although there "
                "was room for an answer: the refusal is hidden from the client."
            )
        if rung.majority(Outcome.HIDDEN):
            return (
                f"The refusal of prompts of {rung.tokens:,} tokens is hidden in a 200: the answer is the sentence of "
                "an error, which a client takes for the model's."
            )
        if rung.majority(Outcome.EMPTY) and not _accepted(ladder, rung):
            return f"Prompts of {rung.tokens:,} tokens are answered with HTTP 200 and no text, instead of an error."
    return ""


def _accepted(ladder: Ladder, rung: RungSeen) -> bool:
    return ladder.limit is not None and rung.tokens < ladder.limit


def empty(ladder: Ladder) -> str:
    """A control that never got more than an empty answer counts as a length."""
    controls = [one for one in ladder.trials if one.name == CONTROL]
    if controls and all(one.outcome is Outcome.EMPTY for one in controls):
        return (
            f"All {len(controls)} answers to prompts of {controls[0].tokens:,} tokens are HTTP 200 without text, in "
            "up to 1,024 tokens of room: clients get nothing and no error."
        )
    for rung in ladder.rungs:
        if rung.majority(Outcome.EMPTY) and _accepted(ladder, rung):
            return (
                f"Prompts of {rung.tokens:,} tokens, which this target accepts, are answered with HTTP 200 and no text "
                f"({rung.count(Outcome.EMPTY)} of {len(rung.trials)}): clients get nothing and no error."
            )
    return ""


def some_empty(ladder: Ladder) -> str:
    odd = (Outcome.EMPTY, Outcome.HIDDEN)
    empty = [
        one for one in ladder.trials if one.outcome in odd and ladder.limit and one.tokens < ladder.limit
    ]
    if not empty:
        return ""
    return (
        f"{len(empty)} of {len(ladder.trials)} answers, one at {empty[0].tokens:,} tokens, which this target accepts, "
        f"came as HTTP 200 with {'no text' if empty[0].outcome is Outcome.EMPTY else 'the sentence of an error'}."
    )


def never_answered(ladder: Ladder) -> str:
    limit = ladder.limit
    trials = [one for one in ladder.trials if one.late and limit and one.tokens >= limit]
    if len(trials) < 2:
        return ""
    how = (
        f"are never answered (no error in {trials[0].seconds:.0f} s)"
        if trials[0].outcome is Outcome.TIMED_OUT
        else f"wait {trials[0].seconds:.0f} s and then end in an internal time-out ({trials[0].status})"
    )
    return (
        f"Prompts of {trials[0].tokens:,} tokens and more {how} while ordinary requests are answered: the refusal "
        "does not reach the client."
    )


def shortened(ladder: Ladder) -> str:
    short = ladder.shortened
    if len(short) < 2:
        return ""
    return (
        f"Prompts of {short[0].tokens:,} tokens are answered from a part of themselves: {short[0].prompt_tokens:,} "
        "tokens were counted. The target shortens long prompts without an error."
    )


def shortened_once(ladder: Ladder) -> str:
    if not ladder.shortened:
        return ""
    one = ladder.shortened[0]
    return f"A prompt of {one.tokens:,} tokens was answered and counted as {one.prompt_tokens:,}: only once."


def pool_shrinks(ladder: Ladder) -> str:
    """Pages stayed behind, and this run and the two before it found more and more of the pool in use."""
    after = sum(ladder.seen.pool_after.values())
    last = [*ladder.seen.earlier_use[-2:], after]
    if not stranded(ladder.seen) or len(last) != 3 or not last[0] < last[1] < last[2]:
        return ""
    return (
        "Refused prompts keep pages: three runs in a row found more of the pool in use with nothing running "
        f"({after:g} now). The pool shrinks with every refusal."
    )


def withheld(ladder: Ladder) -> str:
    return f"Not shown either way: {NO_CONSENT}" if ladder.seen.withheld else ""


def known_misses(ladder: Ladder) -> str:
    misses = ladder.seen.misses
    return misses.why_no_pass if any(way.differs for way in misses) else ""


def stopped(ladder: Ladder) -> str:
    seen = ladder.seen
    if not seen.stopped:
        return ""
    asked = {(one.name, one.repeat) for one in seen.trials if one.name != "search"}
    return f"The ladder was not climbed to its end: {unfinished(len(asked), seen.planned, 'trials', seen.stopped)}"


def no_limit(ladder: Ladder) -> str:
    if ladder.limit is not None:
        return ""
    return f"The length at which this target refuses was not found ({ladder.counted})."


def nothing_accepted(ladder: Ladder) -> str:
    if ladder.accepted:
        return ""
    return (
        f"No prompt below the limit of {ladder.limit:,} tokens was answered with its nonce ({ladder.counted}): "
        "refusals prove nothing while acceptance does not work."
    )


def no_control(ladder: Ladder) -> str:
    misses = ladder.seen.misses
    if not misses.control_lost:
        return ""
    tokens = misses.controls[0].tokens if misses.controls else CONTROL_TOKENS
    return (
        f"Prompts of {tokens:,} tokens are not answered with their nonce either, in up to {ROOMS[-1]:,} tokens of "
        f"room ({ladder.counted}): nothing at the limit can be told from that."
    )


def unshown_above(ladder: Ladder) -> str:
    if not ladder.unshown_above:
        return ""
    first = ladder.unshown_above[0]
    rung = next(rung for rung in ladder.rungs if first in rung.trials)
    some = [one for one in ladder.unshown_above if one in rung.trials]
    asked = f"{len(some)} of {len(rung.trials)} prompts of {rung.tokens:,} tokens, which are to be refused,"
    if not first.wrong:
        return f"{asked} were answered with HTTP 200 and, for want of room, no nonce that shows that they were read."
    return (
        f"{asked} were answered with HTTP 200 and without their nonce: too few beside what short prompts miss, or "
        "nobody's words in them."
    )


def none_near(ladder: Ladder) -> str:
    if ladder.given:
        return ""
    return (
        f"No prompt near the limit of {ladder.limit:,} tokens gave its nonce ({ladder.counted}): a right count alone "
        "does not show that a prompt was read."
    )


def nothing_refused(ladder: Ladder) -> str:
    if ladder.refusing:
        return ""
    return f"No length was seen refused with an error that names it ({ladder.counted})."


def refused_before_the_engine(ladder: Ladder) -> str:
    limit = ladder.limit or 0
    for one in ladder.trials:
        if one.outcome is Outcome.TOO_LARGE and one.tokens < limit:
            return (
                f"A prompt of {one.tokens:,} tokens, below the limit, was refused with 413 by something before the "
                "engine: the engine was never reached at that length."
            )
    return ""


def all_fail(ladder: Ladder) -> str:
    failed = [one for one in ladder.trials if one.outcome is Outcome.FAILED]
    if not failed or len(failed) < len(ladder.trials):
        return ""
    return f"Every completion answers {failed[0].status}{f': {failed[0].error}' if failed[0].error else ''}"


def server_fails(ladder: Ladder) -> str:
    failed = [one for one in ladder.trials if one.outcome is Outcome.FAILED]
    if len(failed) < 2 or void_share(ladder.trials) <= VOID_SHARE:
        return ""
    tokens = min(one.tokens for one in failed)
    instead = " instead of a refusal" if ladder.seen.above(tokens) else ""
    return (
        f"Prompts of {tokens:,} tokens and more end in server errors (5xx){instead}: {failed[0].status}, "
        f"{failed[0].error or 'without a reason'} ({ladder.counted})."
    )


def guarded(ladder: Ladder) -> str:
    guarded = [one for one in ladder.trials if one.outcome is Outcome.GUARDED]
    if not guarded or void_share(ladder.trials) <= VOID_SHARE:
        return ""
    return (
        f"A guardrail answered {len(guarded)} of {len(ladder.trials)} prompts in place of the model, the shortest of "
        f"{min(one.tokens for one in guarded):,} tokens: nothing is known of what the engine does with them."
    )


def void(ladder: Ladder) -> str:
    return f"Too many trials were void: {ladder.counted}." if void_share(ladder.trials) > VOID_SHARE else ""


def two_limits(ladder: Ladder) -> str:
    if ladder.highest <= ladder.lowest:
        return ""
    return (
        f"{ladder.lowest:,} tokens were refused but {ladder.highest:,} answered: two replicas or limits answered in "
        "turn."
    )


def pages_left(ladder: Ladder) -> str:
    if not (left := stranded(ladder.seen)):
        return ""
    return (
        f"{ladder.climbed} But {left:g} of the pool stayed in use, a minute after the last prompt, with nothing "
        "running; three such runs in a row that rise are a fail."
    )


def some_failed(ladder: Ladder) -> str:
    if not ladder.failing:
        return ""
    return f"{ladder.climbed} At {ladder.failing[0].tokens:,} tokens the server failed (5xx) instead of refusing."
