"""Runs the arms of the load and the return visits in a drawn order. What the check is for:
`kvaudit.auditor.checks.concurrency`."""

from __future__ import annotations

from kvaudit.auditor.checks.concurrency import CHECK
from kvaudit.auditor.checks.concurrency.arms import ConcurrencySender, warm_ups
from kvaudit.auditor.checks.concurrency.load import (
    ARMS,
    CONTROLS,
    REQUESTS,
    Lengths,
    arm_tokens,
    jobs_for,
    lengths_for,
    shuffled,
    volleys_for,
    workers_for,
)
from kvaudit.auditor.checks.concurrency.return_visit import FACTS, VISITS, filler_tokens, visit, visit_tokens
from kvaudit.auditor.checks.concurrency.seen import ConcurrencySeen
from kvaudit.auditor.checks.concurrency.verdict import judge_concurrency
from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.prober_protocol import Plan, Prober, Stop
from kvaudit.auditor.checks.trials import unaskable
from kvaudit.auditor.verdict import Result

SLACK = 0.85
"""Of a ceiling: lengths are drawn, and a run that ends at its ceiling has shown nothing."""

SECONDS_EACH = 0.5
"""Rough, of one request with 15 others beside it."""


class ConcurrencyProbe:
    """Puts load on the target: opt-in, in a window, named by a plan or a person."""

    id = CHECK.id

    def plan(self, prober: Prober) -> Plan:
        """Requests (retries left out: they replace what was cut off), and prompt tokens as if every
        request were accepted."""
        lengths = lengths_for(prober.limits)
        if lengths is None:
            return Plan(0, 0, 0.0, note="The limit is unknown, so no length can be chosen.")
        each, visits = _each(prober, lengths)
        per_visit = visit_tokens(prober.limits, lengths)
        fillers = (filler_tokens(prober.limits) or 0) // lengths.long.middle + 1
        requests = each * len(ARMS) + len(warm_ups(lengths)) + visits * (3 * FACTS + fillers)
        tokens = round(_arms_tokens(each, lengths)) + visits * per_visit + sum(warm_ups(lengths))
        return Plan(
            requests,
            tokens,
            SECONDS_EACH * requests,
            each * len(ARMS),
            f"{workers_for(prober.limits, lengths)} requests at once, pool use driven to 80 % and more; other "
            "tenants will wait longer meanwhile.",
        )

    async def observe(self, audit: Audit) -> ConcurrencySeen:
        prober = audit.prober
        if prober is None:
            return ConcurrencySeen(None, unaskable="two tenants' keys")
        seen = ConcurrencySeen(prober.limits, tuple(prober.tenants))
        if len(prober.tenants) < 2:
            seen.unaskable = "a second tenant's key"
            return seen
        lengths = lengths_for(prober.limits)
        if lengths is None:
            seen.stopped = "The limit of this target is unknown or too small, so no lengths can be chosen."
            return seen
        each, seen.visits_planned = _each(prober, lengths)
        seen.planned = each * len(ARMS)
        seen.workers = workers_for(prober.limits, lengths)
        if not seen.visits_planned:
            seen.no_visit = "the pool's size is unknown or the token ceiling too low for the return visit"
        sender = ConcurrencySender(prober, seen)
        try:
            await sender.warm_up(lengths)
            seen.order = tuple(shuffled(ARMS, prober.draw))
            for arm in seen.order:
                volleys = volleys_for(arm, each, lengths, prober.draw)
                jobs = jobs_for(arm, each, lengths, prober.draw)
                seen.aborts_planned += len(volleys) + sum(job.abort is not None for job in jobs)
                for volley in volleys:
                    await sender.volley(volley)
                await sender.arm(arm, jobs, 1 if arm == CONTROLS[0] else seen.workers)
            for number in range(seen.visits_planned):
                await visit(sender, number, lengths)
            await sender.follow_up()
        except Stop as stop:
            seen.stopped = stop.reason
        return seen

    def judge(self, seen: ConcurrencySeen, audit: Audit) -> Result:
        if seen.unaskable:
            return unaskable(self.id, audit, seen.unaskable)
        return judge_concurrency(seen)


def _each(prober: Prober, lengths: Lengths) -> tuple[int, int]:
    """Requests per arm and return visits: n is fixed before the run, as what the ceiling allows."""
    visits = 0 if filler_tokens(prober.limits) is None else VISITS
    ceiling = prober.rounds_ceiling
    if ceiling is None:
        return REQUESTS // len(ARMS), visits
    while visits and visits * visit_tokens(prober.limits, lengths) > ceiling // 2:
        visits -= 1
    left = SLACK * ceiling - visits * visit_tokens(prober.limits, lengths) - sum(warm_ups(lengths))
    return max(0, min(REQUESTS // len(ARMS), int(left * 100 / _arms_tokens(100, lengths)))), visits


def _arms_tokens(each: int, lengths: Lengths) -> float:
    """Prompt tokens of all arms with ``each`` requests per arm."""
    return sum(arm_tokens(arm, each, lengths) for arm in ARMS)


PROBE = ConcurrencyProbe()
