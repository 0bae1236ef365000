"""Sends short prompts of known length and keeps the usage block of each answer; judges them as well. What the
check is for: `kvaudit.auditor.checks.accounting`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvaudit.auditor.checks.accounting import CHECK
from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.evidence_source import labelled_evidence
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome, Plan, Prober, Stop
from kvaudit.auditor.checks.trials import (
    VOID_SHARE,
    Trial,
    harmed,
    needed,
    nothing_learnt,
    result_builder,
    trial,
    unaskable,
    unfinished,
    void_share,
    voids,
)
from kvaudit.auditor.engines import CACHED_TOKENS_FLAGS
from kvaudit.auditor.text.markers import draw_marker
from kvaudit.auditor.text.prompts import draw_leads, draw_nonce
from kvaudit.auditor.verdict import Evidence, Result, Verdict

PROMPTS = 20
SHORTEST, SPREAD = 300, 900
FIRST_WORDS = 8
"""Tokens of a beginning that an earlier run may have sent as well; with pages of 16 and more they fill none."""

FINE_PAGE = 16


@dataclass(slots=True)
class AccountingSeen:
    """Trials of ``PROMPTS`` prompts over all tenants. ``tolerance``: tenant -> cached tokens that a new
    prompt may honestly show: what the target adds itself (a template), rounded up to a page."""

    trials: list[Trial] = field(default_factory=list)
    tolerance: Mapping[str, int] = field(default_factory=dict)
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
            tolerance={tenant: tolerance(prober.template.get(tenant, 0), limits) for tenant in prober.tenants}
        )
        try:
            for number, lead in enumerate(draw_leads(prober.draw, PROMPTS)):
                tenant = prober.tenants[number % len(prober.tenants)]
                marker = draw_marker(prober.draw)
                nonce = draw_nonce(prober.draw, without=marker.words)
                tokens = SHORTEST + prober.draw(SPREAD)
                prompt = await prober.framed(marker, tokens, nonce.tail, tenant=tenant, lead=lead)
                reply = await prober.ask(tenant, prompt, max_tokens=16, stream=number % 2 == 0)
                found = trial("unique", reply, tenant=tenant, asked=prompt.contents, room=16, repeat=number)
                seen.trials.append(found)
                seen.evidence.extend(labelled_evidence(reply, found))
                if problem := await harmed(prober, reply):
                    raise Stop(f"Stopped: {problem}", harm=True)
        except Stop as stop:
            seen.stopped = stop.reason
        return seen

    def judge(self, seen: AccountingSeen, audit: Audit) -> Result:
        if seen.unaskable:
            return unaskable(self.id, audit, "one tenant's key")
        return _judge(seen)


DOES_NOT_PROVE = (
    "That counts are right says nothing about whose pages were read: in the incident every count was right. Clean "
    "accounting clears no other check."
)


def _judge(seen: AccountingSeen) -> Result:
    answered = [one for one in seen.trials if one.outcome in (Outcome.ANSWERED, Outcome.EMPTY, Outcome.CUT)]
    miscounted = [one for one in answered if one.usage_right is False]
    phantom = [one for one in answered if (one.cached_tokens or 0) > seen.tolerance.get(one.tenant, 0)]
    unreported = [one for one in answered if one.cached_tokens is None]
    uncounted = [one for one in answered if one.prompt_tokens is None]
    impossible = [
        one
        for one in answered
        if one.cached_tokens is not None
        and one.prompt_tokens is not None
        and one.cached_tokens > one.prompt_tokens
    ]
    measures: dict[str, Any] = {
        "prompts": len(seen.trials),
        "valid": len(answered),
        "void": sum(not one.outcome.valid for one in seen.trials),
        "miscounted": len(miscounted),
        "phantom_cached": len(phantom),
        "largest_cached_tokens": max((one.cached_tokens or 0 for one in answered), default=None),
        "cached_not_reported": len(unreported),
        "tolerance_tokens": max(seen.tolerance.values(), default=0),
    }

    result = result_builder("accounting", measures, DOES_NOT_PROVE, seen.evidence)

    if (error := nothing_learnt(result, seen.trials)) is not None:
        return error
    if miscounted:
        worst = miscounted[0]
        return result(
            Verdict.FAIL,
            f"A prompt of {worst.tokens:,} tokens was counted as {worst.prompt_tokens:,} "
            f"({len(miscounted)} of {len(answered)} prompts): what ran is not what was sent.",
            "Look for truncation or a placeholder on this path; run rejection and coherence.",
            "high",
        )
    if impossible:
        return result(
            Verdict.ERROR,
            "The target reports more cached tokens than prompt tokens: its usage block cannot be read.",
            "See what rewrites the usage block between engine and client.",
        )
    if phantom:
        worst = max(phantom, key=lambda one: one.cached_tokens or 0)
        return result(
            Verdict.FAIL,
            f"{worst.cached_tokens:,} tokens of a prompt that nobody ever sent were served from the cache "
            f"({len(phantom)} of {len(answered)} prompts): the cache confuses different texts.",
            "Disable prefix caching or upgrade; see the advisories on hash collisions and salt handling.",
            "high",
        )
    if seen.stopped:
        said = unfinished(len(seen.trials), PROMPTS, "prompts", seen.stopped)
        return result(Verdict.INCONCLUSIVE, f"Not all prompts were sent: {said}", needed(seen.stopped))
    if void_share(seen.trials) > VOID_SHARE or len(answered) < 0.9 * PROMPTS:
        return result(
            Verdict.INCONCLUSIVE,
            f"Only {len(answered)} of {PROMPTS} prompts were answered ({voids(seen.trials)}).",
            "Mend what made trials void, then run again.",
        )
    if uncounted:
        return result(
            Verdict.INCONCLUSIVE,
            "The target does not report how many tokens it read.",
            "Have it send a usage block.",
        )
    if unreported:
        flags = [f"{engine} with {flag}" for engine, flag in CACHED_TOKENS_FLAGS.items()]
        return result(
            Verdict.INCONCLUSIVE,
            f"All {len(answered)} prompts were counted right, but cached tokens are not reported: unknown is not zero.",
            f"Start {', '.join(flags)}.",
        )
    return result(
        Verdict.PASS,
        f"All {len(answered)} unique prompts were counted exactly and none was served from the cache "
        f"({voids(seen.trials)}).",
        "Run again daily.",
    )


PROBE = AccountingProbe()
