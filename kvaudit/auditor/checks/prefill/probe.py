"""Measures the time to the first token of unique prompts of many lengths. What the check is for:
`kvaudit.auditor.checks.prefill`."""

from __future__ import annotations

from kvaudit.auditor.checks.asker import Asker, Cell
from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.prefill import CHECK
from kvaudit.auditor.checks.prefill.verdict import PrefillSeen, judge_prefill
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome, Plan, Prober, Stop
from kvaudit.auditor.checks.trials import Trial, unaskable, withheld
from kvaudit.auditor.checks.ways import Way
from kvaudit.auditor.text.prompts import draw_leads
from kvaudit.auditor.verdict import Result

FIT_LENGTHS = 8
FIT_REPEATS = 5
FIT_TOP = 0.9  # of N
FIT_BOTTOM = 256
LEAST_REPEATS = 3
"""Of a judged length; by each route once at least."""
FIT = "fit"


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
        repeats = max(LEAST_REPEATS, len(prober.modes))
        tokens = FIT_REPEATS * sum(fit_lengths(n)) + repeats * sum(
            length for _, length in judged if length < n
        )
        requests = FIT_REPEATS * FIT_LENGTHS + repeats * len(judged)
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
        repeats = max(LEAST_REPEATS, len(prober.modes))
        judged = [pair for pair in judged_lengths(prober.limits, prober.consent) for _ in range(repeats)]
        seen.planned = len(order) + len(judged)
        unanswered: set[tuple[str, str]] = set()  # name and route; "" = any
        first_words = iter(draw_leads(prober.draw, len(order) + len(judged)))
        asker = Asker(prober, seen.asked, seen.evidence, seen.misses, seen.planned, streams=(True,))
        usual = Way(prober.modes[0], True)  # times of one way make one curve

        async def one(name: str, length: int, way: Way) -> Trial:
            cell = Cell(name, length, prober.tenants[0], way=way, lead=True)
            return (await asker.ask(cell, lead=next(first_words), compare=length < n)).trial

        try:
            for length in order:
                seen.fitted.append(await one(FIT, length, usual))
            for name, length in judged:
                way = asker.ways.next(name, length)
                if unanswered & {(name, ""), (name, way.mode)}:
                    continue  # a length above the limit that is not answered is not applicable
                found = await one(name, length, way)
                seen.judged.append(found)
                if length >= n and found.outcome is not Outcome.ANSWERED:
                    unanswered.add((name, way.mode if found.outcome is Outcome.REFUSED else ""))
        except Stop as stop:
            seen.stopped = stop.reason
        seen.unhealthy = asker.unhealthy
        return seen

    def judge(self, seen: PrefillSeen, audit: Audit) -> Result:
        if seen.unaskable:
            return unaskable(self.id, audit, "one tenant's key")
        return judge_prefill(seen)


PROBE = PrefillProbe()
