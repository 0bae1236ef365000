"""Judges the usage blocks of short prompts of known length. Pure: no clock, no network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kvaudit.auditor.checks.misses import LOOK_AT_MISSES
from kvaudit.auditor.checks.misses_by_way import MissesByWay
from kvaudit.auditor.checks.prober_protocol import Outcome
from kvaudit.auditor.checks.rules import Rule, first_that_holds
from kvaudit.auditor.checks.trials import (
    CHECK_THE_KEY,
    VOID_SHARE,
    Trial,
    key_refused,
    needed,
    result_builder,
    unfinished,
    void_share,
    voids,
)
from kvaudit.auditor.checks.ways import asked_as, ways_asked
from kvaudit.auditor.engines import CACHED_TOKENS_FLAGS
from kvaudit.auditor.verdict import Evidence, Result, Verdict

UNIQUE, AGAIN = "unique", "again"
PROMPTS = 20
JUDGED_SHARE = 0.9
"""Of the answers must be whole enough to be judged by their nonce."""

_COUNTED = (Outcome.ANSWERED, Outcome.EMPTY, Outcome.CUT)


@dataclass(slots=True)
class AccountingSeen:
    """Trials of ``PROMPTS`` prompts over all tenants, and what was asked again. ``tolerance``: route and tenant ->
    cached tokens that a new prompt may honestly show: what the target adds itself (a template), rounded up to a
    page."""

    trials: list[Trial] = field(default_factory=list)
    tolerance: Mapping[tuple[str, str], int] = field(default_factory=dict)
    misses: MissesByWay = field(default_factory=MissesByWay)
    stopped: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    unaskable: bool = False


DOES_NOT_PROVE = (
    "That counts are right says nothing about whose pages were read: in the incident every count was right. Clean "
    "accounting clears no other check."
)


def judge_accounting(seen: AccountingSeen) -> Result:
    account = Account(seen)
    result = result_builder("accounting", _measures(account), DOES_NOT_PROVE, seen.evidence)
    return first_that_holds(RULES, account, result)


class Account:
    """The unique prompts of a run, by what is wrong with their counts, and those that were asked again for it."""

    def __init__(self, seen: AccountingSeen) -> None:
        self.seen = seen
        self.trials = [one for one in seen.trials if one.name == UNIQUE]
        self.answered = [one for one in self.trials if one.outcome in _COUNTED]
        self.again = [one for one in seen.trials if one.name == AGAIN and one.outcome in _COUNTED]

    @cached_property
    def miscounted(self) -> list[Trial]:
        return [one for one in self.answered if one.usage_right is False]

    @cached_property
    def phantom(self) -> list[Trial]:
        return [one for one in self.answered if self._phantom(one)]

    def odd(self, one: Trial) -> bool:
        """Whether its counts are those of another prompt."""
        return one.usage_right is False or self._phantom(one)

    def _phantom(self, one: Trial) -> bool:
        """With cached tokens that no template explains."""
        return (one.cached_tokens or 0) > self.seen.tolerance.get((one.mode, one.tenant), 0)

    @property
    def miscounts(self) -> int:
        """How often a count was wrong, repeats among them: what was seen once may be chance."""
        return len(self.miscounted) + sum(one.usage_right is False for one in self.again)

    @property
    def phantoms(self) -> int:
        return len(self.phantom) + sum(self._phantom(one) for one in self.again)

    @property
    def judged(self) -> int:
        return sum(one.nonce is not None for one in self.answered)

    @property
    def read(self) -> int:
        return sum(one.nonce is True for one in self.answered)

    @property
    def impossible(self) -> bool:
        counted = [one for one in self.answered if None not in (one.cached_tokens, one.prompt_tokens)]
        return any((one.cached_tokens or 0) > (one.prompt_tokens or 0) for one in counted)

    @property
    def unreported(self) -> int:
        return sum(one.cached_tokens is None for one in self.answered)

    @property
    def counted(self) -> str:
        return f"{len(self.answered)} of {max(PROMPTS, len(self.trials))} prompts were answered ({voids(self.trials)})"


def _miscounted(account: Account) -> str:
    if account.miscounts < 2:
        return ""
    worst = account.miscounted[0]
    return (
        f"A prompt of {worst.tokens:,} tokens was counted as {worst.prompt_tokens:,} "
        f"({len(account.miscounted)} of {len(account.answered)} prompts): what ran is not what was sent."
    )


def _impossible(account: Account) -> str:
    if not account.impossible:
        return ""
    return "The target reports more cached tokens than prompt tokens: its usage block cannot be read."


def _phantom(account: Account) -> str:
    if account.phantoms < 2:
        return ""
    most = max(one.cached_tokens or 0 for one in account.phantom)
    return (
        f"{most:,} tokens of a prompt that nobody ever sent were served from the cache ({len(account.phantom)} of "
        f"{len(account.answered)} prompts): the cache confuses different texts."
    )


def _once(account: Account) -> str:
    if account.miscounted:
        odd, how = account.miscounted[0], "was counted as"
        seen = odd.prompt_tokens
    elif account.phantom:
        odd, how = account.phantom[0], "that nobody ever sent was served from the cache with"
        seen = odd.cached_tokens
    else:
        return ""
    again = "and not when it was asked again" if account.again else "and it was not asked again"
    return f"A prompt of {odd.tokens:,} tokens {how} {seen:,}: once, {again}."


def _unjudged(account: Account) -> str:
    """Counts can be right for a prompt that nobody read: they were in the incident."""
    if account.read and account.judged >= JUDGED_SHARE * len(account.answered):
        return ""
    return (
        f"Of {len(account.answered)} answers {account.judged} could be judged by their nonce and {account.read} gave "
        "it: the counts are right, but not known to be those of prompts that were read."
    )


def _stopped(account: Account) -> str:
    stopped = account.seen.stopped
    if not stopped:
        return ""
    return f"Not all prompts were sent: {unfinished(len(account.trials), PROMPTS, 'prompts', stopped)}"


def _too_few(account: Account) -> str:
    enough = len(account.answered) >= 0.9 * PROMPTS and void_share(account.seen.trials) <= VOID_SHARE
    return "" if enough else f"Only {account.counted}."


def _uncounted(account: Account) -> str:
    hidden = any(one.prompt_tokens is None for one in account.answered)
    return "The target does not report how many tokens it read." if hidden else ""


def _unreported(account: Account) -> str:
    if not account.unreported:
        return ""
    return (
        f"All {len(account.answered)} prompts were counted right, but cached tokens are not reported: unknown is not "
        "zero."
    )


def _empty(account: Account) -> str:
    empty = [one for one in account.seen.trials if one.outcome is Outcome.EMPTY]
    if not empty:
        return ""
    return (
        f"{len(empty)} of {len(account.seen.trials)} prompts, which were accepted and counted, were answered with HTTP "
        "200 and no text: clients get nothing and no error."
    )


def _right(account: Account) -> str:
    return (
        f"All {len(account.answered)} unique prompts were counted exactly and none was served from the cache "
        f"({voids(account.trials)}).{account.seen.misses.said}{asked_as(account.trials)}"
    )


ERROR, FAIL, OPEN, PASS = Verdict.ERROR, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS

RULES: tuple[Rule[Account], ...] = (
    Rule("miscounted", FAIL, _miscounted, "Look for truncation or a placeholder on this path; run rejection and "
         "coherence.", "high"),
    Rule("impossible", ERROR, _impossible, "See what rewrites the usage block between engine and client."),
    Rule("phantom", FAIL, _phantom, "Disable prefix caching or upgrade; see the advisories on hash collisions and salt "
         "handling.", "high"),
    Rule("key refused", ERROR, lambda account: key_refused(account.seen.trials), CHECK_THE_KEY),
    # From here on nothing was seen against the target. Was enough seen for it?
    Rule("once", OPEN, _once, "Run again; what is seen twice is a fail.", warn=True),
    Rule("stopped", OPEN, _stopped, lambda account: needed(account.seen.stopped)),
    Rule("too few", OPEN, _too_few, "Mend what made trials void, then run again."),
    Rule("uncounted", OPEN, _uncounted, "Have it send a usage block."),
    Rule("unreported", OPEN, _unreported, "Start "
         f"{', '.join(f'{engine} with {flag}' for engine, flag in CACHED_TOKENS_FLAGS.items())}."),
    Rule("empty", OPEN, _empty, "See what drops answers between engine and client, then run again.", warn=True),
    Rule("misses", OPEN, lambda account: account.seen.misses.why_no_pass, LOOK_AT_MISSES, warn=True),
    Rule("unjudged", OPEN, _unjudged, LOOK_AT_MISSES, warn=True),
    Rule("right", PASS, _right, "Run again daily."),
)  # fmt: skip


def _measures(account: Account) -> dict[str, Any]:
    return {
        "prompts": len(account.trials),
        "valid": len(account.answered),
        "void": sum(not one.outcome.valid for one in account.trials),
        "miscounted": len(account.miscounted),
        "asked_again": len(account.again),
        "read": account.read,
        "phantom_cached": len(account.phantom),
        "largest_cached_tokens": max((one.cached_tokens or 0 for one in account.answered), default=None),
        "cached_not_reported": account.unreported,
        "tolerance_tokens": max(account.seen.tolerance.values(), default=0),
        "ways": ways_asked(account.trials),
        "misses": account.seen.misses.as_measure(),
    }
