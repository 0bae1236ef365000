"""Sends short prompts of known length and keeps the usage block of each answer; judges them as well. What the
check is for: `kvaudit.auditor.checks.accounting`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from kvaudit.auditor.checks.accounting import CHECK
from kvaudit.auditor.checks.asker import Asker, Cell
from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.misses import LOOK_AT_MISSES
from kvaudit.auditor.checks.misses_by_way import MissesByWay
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome, Plan, Prober, Stop
from kvaudit.auditor.checks.rules import Rule, first_that_holds
from kvaudit.auditor.checks.trials import (
    CHECK_THE_KEY,
    VOID_SHARE,
    Trial,
    key_refused,
    needed,
    result_builder,
    unaskable,
    unfinished,
    void_share,
    voids,
)
from kvaudit.auditor.checks.ways import asked_as, ways_asked
from kvaudit.auditor.engines import CACHED_TOKENS_FLAGS
from kvaudit.auditor.text.prompts import draw_leads
from kvaudit.auditor.verdict import Evidence, Result, Verdict

UNIQUE = "unique"
PROMPTS = 20
SHORTEST, SPREAD = 300, 900
FIRST_WORDS = 8
"""Tokens of a beginning that an earlier run may have sent as well; with pages of 16 and more they fill none."""

FINE_PAGE = 16


@dataclass(slots=True)
class AccountingSeen:
    """Trials of ``PROMPTS`` prompts over all tenants. ``tolerance``: route and tenant -> cached
    tokens that a new prompt may honestly show: what the target adds itself (a template), rounded up to a page."""

    trials: list[Trial] = field(default_factory=list)
    tolerance: Mapping[tuple[str, str], int] = field(default_factory=dict)
    misses: MissesByWay = field(default_factory=MissesByWay)
    stopped: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    unaskable: bool = False


def tolerance(added: int, limits: Limits) -> int:
    """Cached tokens that say nothing: the template's own, rounded up to a page. Where pages are finer than
    16 tokens, or unknown, a first word that another run happened to draw is not held against the target."""
    slack = 0 if limits.page_read and limits.page >= FINE_PAGE else FIRST_WORDS
    return -(-(added + slack) // limits.page) * limits.page


class AccountingProbe:
    """Sends 20 short prompts that nobody has sent before and compares the usage block."""

    id = CHECK.id

    def plan(self, prober: Prober) -> Plan:
        return Plan(PROMPTS, PROMPTS * (SHORTEST + SPREAD // 2), float(PROMPTS))

    async def observe(self, audit: Audit) -> AccountingSeen:
        """Send the prompts, as every tenant in turn."""
        prober = audit.prober
        if prober is None:
            return AccountingSeen(unaskable=True)
        limits = prober.limits
        seen = AccountingSeen(
            tolerance={
                (mode.value, tenant): tolerance(added, limits)
                for (mode, tenant), added in prober.templates.items()
            }
        )
        asker = Asker(prober, seen.trials, seen.evidence, seen.misses, planned=PROMPTS)
        try:
            for number, lead in enumerate(draw_leads(prober.draw, PROMPTS)):
                tenant = prober.tenants[number % len(prober.tenants)]
                cell = Cell(
                    UNIQUE,
                    SHORTEST + prober.draw(SPREAD),
                    tenant,
                    wanted=16,
                    lead=True,
                )
                cell = replace(cell, way=asker.ways.next(tenant, cell.tokens))
                await asker.ask(cell, number, lead=lead)
        except Stop as stop:
            seen.stopped = stop.reason
        return seen

    def judge(self, seen: AccountingSeen, audit: Audit) -> Result:
        if seen.unaskable:
            return unaskable(self.id, audit, "one tenant's key")
        account = Account(seen)
        result = result_builder(self.id, _measures(account), DOES_NOT_PROVE, seen.evidence)
        return first_that_holds(RULES, account, result)


DOES_NOT_PROVE = (
    "That counts are right says nothing about whose pages were read: in the incident every count was right. Clean "
    "accounting clears no other check."
)


class Account:
    """The unique prompts of a run, by what is wrong with their counts."""

    def __init__(self, seen: AccountingSeen) -> None:
        self.seen = seen
        self.trials = [one for one in seen.trials if one.name == UNIQUE]
        self.answered = [
            one for one in self.trials if one.outcome in (Outcome.ANSWERED, Outcome.EMPTY, Outcome.CUT)
        ]

    @cached_property
    def miscounted(self) -> list[Trial]:
        return [one for one in self.answered if one.usage_right is False]

    @cached_property
    def phantom(self) -> list[Trial]:
        """With cached tokens that no template explains."""
        return [
            one
            for one in self.answered
            if (one.cached_tokens or 0) > self.seen.tolerance.get((one.mode, one.tenant), 0)
        ]

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
    if not account.miscounted:
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
    if not account.phantom:
        return ""
    most = max(one.cached_tokens or 0 for one in account.phantom)
    return (
        f"{most:,} tokens of a prompt that nobody ever sent were served from the cache ({len(account.phantom)} of "
        f"{len(account.answered)} prompts): the cache confuses different texts."
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
    Rule("key refused", ERROR, lambda account: key_refused(account.seen.trials), CHECK_THE_KEY),
    Rule("miscounted", FAIL, _miscounted, "Look for truncation or a placeholder on this path; run rejection and "
         "coherence.", "high"),
    Rule("impossible", ERROR, _impossible, "See what rewrites the usage block between engine and client."),
    Rule("phantom", FAIL, _phantom, "Disable prefix caching or upgrade; see the advisories on hash collisions and salt "
         "handling.", "high"),
    # From here on nothing was seen against the target. Was enough seen for it?
    Rule("stopped", OPEN, _stopped, lambda account: needed(account.seen.stopped)),
    Rule("too few", OPEN, _too_few, "Mend what made trials void, then run again."),
    Rule("uncounted", OPEN, _uncounted, "Have it send a usage block."),
    Rule("unreported", OPEN, _unreported, "Start "
         f"{', '.join(f'{engine} with {flag}' for engine, flag in CACHED_TOKENS_FLAGS.items())}."),
    Rule("empty", OPEN, _empty, "See what drops answers between engine and client, then run again.", warn=True),
    Rule("misses", OPEN, lambda account: account.seen.misses.why_no_pass, LOOK_AT_MISSES, warn=True),
    Rule("right", PASS, _right, "Run again daily."),
)  # fmt: skip


def _measures(account: Account) -> dict[str, Any]:
    return {
        "prompts": len(account.trials),
        "valid": len(account.answered),
        "void": sum(not one.outcome.valid for one in account.trials),
        "miscounted": len(account.miscounted),
        "phantom_cached": len(account.phantom),
        "largest_cached_tokens": max((one.cached_tokens or 0 for one in account.answered), default=None),
        "cached_not_reported": account.unreported,
        "tolerance_tokens": max(account.seen.tolerance.values(), default=0),
        "ways": ways_asked(account.trials),
        "misses": account.seen.misses.as_measure(),
    }


PROBE = AccountingProbe()
