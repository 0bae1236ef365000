"""Measures the time to the first token of unique prompts of many lengths. What the check is for:
`kvaudit.auditor.checks.prefill`."""

from __future__ import annotations

from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.evidence_source import labelled_evidence
from kvaudit.auditor.checks.prefill import CHECK
from kvaudit.auditor.checks.prefill.verdict import PrefillSeen, judge_prefill
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome, Plan, Prober, Stop
from kvaudit.auditor.checks.trials import Trial, harmed, trial, unaskable, withheld
from kvaudit.auditor.text.markers import draw_marker
from kvaudit.auditor.text.prompts import draw_leads, draw_nonce
from kvaudit.auditor.verdict import Result

FIT_LENGTHS = 8
FIT_REPEATS = 5
FIT_TOP = 0.9  # of N
FIT_BOTTOM = 256
JUDGED_REPEATS = 3
ANSWER_TOKENS = 24


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


class PrefillProbe:
    """Measures time to first token of one tenant's streamed unique prompts."""

    id = CHECK.id

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
        seen = PrefillSeen(
            prober.limits,
            withheld=withheld(prober.limits, prober.consent),
            earlier=audit.history.prefill_residuals if audit.history else (),
        )
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
        seen.planned = len(order) + len(judged)
        unanswered: set[str] = set()
        first_words = iter(draw_leads(prober.draw, len(order) + len(judged)))
        try:
            for length in order:
                seen.fitted.append(await self._one(prober, seen, "fit", length, next(first_words)))
            for name, length in judged:
                if name in unanswered:
                    continue  # a length above the limit that is not answered is not applicable
                found = await self._one(prober, seen, name, length, next(first_words))
                seen.judged.append(found)
                if length >= n and found.outcome is not Outcome.ANSWERED:
                    unanswered.add(name)
        except Stop as stop:
            seen.stopped = stop.reason
        return seen

    async def _one(self, prober: Prober, seen: PrefillSeen, name: str, tokens: int, lead: str) -> Trial:
        marker = draw_marker(prober.draw)
        nonce = draw_nonce(prober.draw, without=marker.words)
        tenant = prober.tenants[0]
        prompt = await prober.framed(marker, tokens, nonce.tail, tenant=tenant, lead=lead)
        room = prober.room(tokens, ANSWER_TOKENS)
        reply = await prober.ask(tenant, prompt, max_tokens=room)
        found = trial(name, reply, tenant=tenant, asked=prompt.contents, room=room)
        seen.evidence.extend(labelled_evidence(reply, found))
        if problem := await harmed(prober, reply):
            seen.unhealthy = problem
            raise Stop(f"Stopped at {tokens:,} tokens: {problem}", harm=True)
        return found

    def judge(self, seen: PrefillSeen, audit: Audit) -> Result:
        if seen.unaskable:
            return unaskable(self.id, audit, "one tenant's key")
        return judge_prefill(seen)


PROBE = PrefillProbe()
