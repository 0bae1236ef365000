"""Is any prefill too fast to be true?

A leaked request skips its prefill: one page instead of ten thousand. Time to first token is fitted
over unique prompts of many lengths, and the longest accepted length, like every length at or above
the limit that was answered, is held against the fit. An oddly fast long prompt is not a win.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvaudit.checks import register
from kvaudit.checks.asking import Limits, Outcome, Plan, Prober, Stop
from kvaudit.checks.contract import Audit
from kvaudit.checks.trials import (
    GIVE_CONSENT,
    NO_CONSENT,
    VOID_SHARE,
    Trial,
    denied,
    kept,
    trial,
    unaskable,
    void_share,
    voids,
    withheld,
)
from kvaudit.text.markers import draw_marker
from kvaudit.text.prompts import draw_leads, draw_nonce
from kvaudit.verdict import Evidence, Result, Verdict

FIT_LENGTHS = 8
FIT_REPEATS = 5
FIT_TOP = 0.9  # of N
FIT_BOTTOM = 256
JUDGED_REPEATS = 3
ANSWER_TOKENS = 24
MOST_SIGMA = 0.5
"""Above this spread on the log scale the times are noise and nothing can be judged."""


@dataclass(slots=True)
class PrefillSeen:
    limits: Limits | None
    fitted: list[Trial] = field(default_factory=list)
    judged: list[Trial] = field(default_factory=list)
    stopped: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    withheld: bool = False
    unaskable: bool = False


def fit_lengths(first_rejected: int) -> tuple[int, ...]:
    """Eight lengths from 256 to 0.9 N, evenly spread on the square root so that both the constant
    and the quadratic part are held."""
    low, high = FIT_BOTTOM**0.5, (FIT_TOP * first_rejected) ** 0.5
    steps = [low + (high - low) * step / (FIT_LENGTHS - 1) for step in range(FIT_LENGTHS)]
    return tuple(dict.fromkeys(round(step**2) for step in steps))


def judged_lengths(limits: Limits, consent: bool) -> tuple[tuple[str, int], ...]:
    n, longest = limits.first_rejected, limits.longest_safe
    if n is None or longest is None:
        return ()
    chosen = [("longest", longest)]
    if consent or not limits.dangerous:
        chosen += [("N", n), ("N+1", n + 1)]
        if limits.context is not None and limits.context > n + 1:
            chosen.append(("midpoint", (n + limits.context) // 2))
    return tuple(chosen)


@register
class Prefill:
    """Measures time to first token of one tenant's streamed unique prompts."""

    id = "prefill"
    title = "Prefill too fast to be true"
    why = "An answer that begins before the prompt can have been read did not read it."
    items = ()
    engines: frozenset[str] = frozenset()
    needs = "one tenant"
    kind = "active"

    def plan(self, prober: Prober) -> Plan:
        n = prober.limits.first_rejected
        if n is None:
            return Plan(0, 0, 0.0, note="the limit is unknown")
        judged = judged_lengths(prober.limits, prober.consent)
        tokens = FIT_REPEATS * sum(fit_lengths(n)) + JUDGED_REPEATS * sum(
            length for _, length in judged if length < n
        )
        requests = FIT_REPEATS * FIT_LENGTHS + JUDGED_REPEATS * len(judged)
        return Plan(requests, tokens, 2.0 * requests)

    async def observe(self, audit: Audit) -> PrefillSeen:
        prober = audit.prober
        if prober is None:
            return PrefillSeen(None, unaskable=True)
        seen = PrefillSeen(prober.limits, withheld=withheld(prober.limits, prober.consent))
        n = prober.limits.first_rejected
        if n is None:
            return seen
        order = [length for length in fit_lengths(n) for _ in range(FIT_REPEATS)]
        for index in range(len(order) - 1, 0, -1):  # shuffled: a drift must not look like a length
            other = prober.draw(index + 1)
            order[index], order[other] = order[other], order[index]
        judged = [
            pair for pair in judged_lengths(prober.limits, prober.consent) for _ in range(JUDGED_REPEATS)
        ]
        first_words = iter(draw_leads(prober.draw, len(order) + len(judged)))
        try:
            for length in order:
                seen.fitted.append(await self._one(prober, seen, "fit", length, next(first_words)))
            for name, length in judged:
                seen.judged.append(await self._one(prober, seen, name, length, next(first_words)))
        except Stop as stop:
            seen.stopped = stop.reason
        return seen

    async def _one(self, prober: Prober, seen: PrefillSeen, name: str, tokens: int, lead: str) -> Trial:
        marker = draw_marker(prober.draw)
        nonce = draw_nonce(prober.draw, without=marker.words)
        tenant = prober.tenants[0]
        prompt = await prober.framed(marker, tokens, nonce.question, tenant=tenant, lead=lead)
        room = prober.room(tokens, ANSWER_TOKENS)
        reply = await prober.ask(tenant, prompt, max_tokens=room)
        seen.evidence.extend(reply.evidence)
        return trial(name, reply, tenant=tenant, nonce=nonce, room=room)

    def judge(self, seen: PrefillSeen, audit: Audit) -> Result:
        if seen.unaskable:
            return unaskable(self.id, audit, "one tenant's key")
        return _judge(seen)


DOES_NOT_PROVE = (
    "It fails only where rejection does; its own worth is on production traffic (the p5 of the long-context bucket), "
    "which these few probes cannot reach. A leak whose prefill really ran is not seen."
)


def _judge(seen: PrefillSeen) -> Result:
    everything = [*seen.fitted, *seen.judged]
    measures: dict[str, Any] = {
        "points": [
            {"tokens": one.tokens, "uncached": _uncached(one), "seconds": one.first_token, "name": one.name}
            for one in everything
            if one.first_token is not None and one.outcome is Outcome.ANSWERED
        ],
        "valid": sum(one.outcome.valid for one in everything),
        "void": sum(not one.outcome.valid for one in everything),
        "p5": None,
        "p5_note": "a p5 needs 59 requests per length bucket; it comes from production traffic",
    }

    def result(
        verdict: Verdict, summary: str, next_step: str, severity: str = "", warn: bool = False
    ) -> Result:
        return Result(
            "prefill",
            verdict,
            summary,
            measures,
            next_step,
            DOES_NOT_PROVE,
            warn,
            severity,
            kept(seen.evidence),
        )

    if refusal := denied(everything):
        return result(
            Verdict.ERROR,
            f"The entry refused the tenant's key ({refusal.status}): nothing was learnt.",
            "Check the key.",
        )
    usable = [one for one in seen.fitted if one.read and one.first_token]
    lengths = {one.tokens for one in usable}
    if len(lengths) < 7 or len(usable) < 0.9 * FIT_LENGTHS * FIT_REPEATS:
        return result(
            Verdict.INCONCLUSIVE,
            f"Only {len(usable)} timed answers at {len(lengths)} lengths with their nonce ({voids(everything)}): too "
            f"few to fit. {seen.stopped}".rstrip(),
            "Run again when the target answers.",
        )
    from kvaudit.stats.ttft import fit, judge

    curve = fit([_uncached(one) for one in usable], [one.first_token or 0.0 for one in usable])
    measures["fit"] = {"a": curve.a, "b": curve.b, "c": curve.c, "sigma": curve.sigma}
    if curve.sigma > MOST_SIGMA:
        return result(
            Verdict.INCONCLUSIVE,
            f"First-token times scatter too much to judge (sigma {curve.sigma:.2f} on the log scale).",
            "Measure in a quieter window.",
        )
    flagged, untestable, compared = [], [], []
    for one in seen.judged:
        if one.outcome is not Outcome.ANSWERED or not one.first_token:
            continue
        speed = judge(curve, _uncached(one), one.first_token)
        compared.append(
            {
                "name": one.name,
                "tokens": one.tokens,
                "seconds": one.first_token,
                "expected": speed.expected,
                "ratio": speed.ratio,
            }
            | {"z": speed.z, "testable": speed.testable, "too_fast": speed.too_fast, "nonce": one.nonce}
        )
        if speed.too_fast:
            flagged.append(one)
        elif not speed.testable:
            untestable.append(one)
    measures["judged"] = compared
    unread = [one for one in flagged if one.nonce is False]
    if unread:
        return result(
            Verdict.FAIL,
            f"Prompts of {unread[0].tokens:,} tokens were answered far faster than this target can read them "
            f"({len(unread)} times) and without their own nonce: they were not read.",
            f"Stop serving prompts of {unread[0].tokens:,} tokens and more; run rejection and canary.",
            "critical",
        )
    if flagged:
        return result(
            Verdict.INCONCLUSIVE,
            f"Prompts of {flagged[0].tokens:,} tokens were answered far faster than the fit allows, nonce and all.",
            "Look for a cache that is not reported, or a faster path for long prompts.",
            warn=True,
        )
    accepted = [one for one in seen.judged if one.name == "longest" and one.outcome is Outcome.ANSWERED]
    if seen.stopped or void_share(everything) > VOID_SHARE or not accepted:
        return result(
            Verdict.INCONCLUSIVE,
            f"Not measured to the end ({voids(everything)}). {seen.stopped}".rstrip(),
            "Run again.",
        )
    if untestable:
        return result(
            Verdict.INCONCLUSIVE,
            f"At {untestable[0].tokens:,} tokens prefill takes no longer than the constant part of an answer, or the "
            "length lies too far beyond the fitted ones: a skipped prefill would not show.",
            "Nothing to do; rejection and coherence do not depend on timing.",
        )
    if seen.withheld:
        return result(
            Verdict.INCONCLUSIVE,
            f"{accepted[0].tokens:,} tokens took as long as shorter prompts foretell, but {NO_CONSENT}",
            GIVE_CONSENT,
        )
    return result(
        Verdict.PASS,
        f"{len(accepted)} prompts of {accepted[0].tokens:,} tokens took as long as {len(usable)} shorter ones foretell "
        f"({voids(everything)}).",
        "Watch the p5 of production prefill times.",
    )


def _uncached(one: Trial) -> int:
    """Tokens that had to be read; prompts are unique, so an unreported cache counts as none."""
    return max(1, one.tokens - (one.cached_tokens or 0))
