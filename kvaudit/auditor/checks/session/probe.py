"""How the check asks: see `kvaudit.auditor.checks.session` for what it is."""

from __future__ import annotations

import math

from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.prober_protocol import Plan, Prober, Stop
from kvaudit.auditor.checks.session import CHECK
from kvaudit.auditor.checks.session.api import SessionPlan, Unusable
from kvaudit.auditor.checks.session.claims import (
    FILL,
    LEAST_ROUNDS,
    MOST_ROUNDS,
    MOST_SEEDS,
    UNKNOWN_FILL,
    Campaign,
)
from kvaudit.auditor.checks.session.seen import CLAIMS, SessionSeen
from kvaudit.auditor.checks.session.verdict import judge_session, missing_parts, why_unasked
from kvaudit.auditor.verdict import Result


class SessionCheck:
    """Reads `audit.session`, a `kvaudit.auditor.checks.session.api.SessionWire`, and needs no prober."""

    id = CHECK.id

    def plan(self, prober: Prober) -> Plan:
        """No prompt tokens. The number of requests depends on the pool; this is for one of unknown size."""
        return Plan(LEAST_ROUNDS * UNKNOWN_FILL * 12, 0, 60.0, LEAST_ROUNDS, "requests to the session API")

    async def observe(self, audit: Audit) -> SessionSeen:
        wire = audit.session
        if wire is None:
            return SessionSeen(unaskable="a description of the session API (session: in the fleet file)")
        seen = SessionSeen(
            tuple(wire.accounts), not_there=wire.plan.without, undeclared=missing_parts(wire.plan)
        )
        if len(wire.accounts) < 2:
            seen.unaskable = "a second account's key"
            return seen
        campaign = Campaign(wire, seen)
        try:
            await _before(campaign, wire.plan)
            if not seen.pool_problem:
                await _rounds(campaign)
            if seen.in_use_before is not None and not seen.finds:
                seen.in_use_after = await campaign.settled(seen.in_use_before)
        except (Stop, Unusable) as stop:
            seen.stopped = str(stop)
        return seen

    def judge(self, seen: SessionSeen, audit: Audit) -> Result:
        return why_unasked(seen, audit.why_no_session) if seen.unaskable else judge_session(seen)


async def _before(campaign: Campaign, plan: SessionPlan) -> None:
    seen = campaign.seen
    seen.largest, seen.largest_declared = plan.largest, plan.largest is not None
    if not plan.pool_path:
        return
    seen.pool = await campaign.read_pool()
    if seen.pool is None:
        return
    if not seen.pool.pool.known:
        seen.pool_problem = f"its capacity is not where it was said to be: {seen.pool.pool.source}"
    seen.in_use_before = seen.pool.counters.get("in_use")
    if seen.pool.context.known:
        seen.largest, seen.largest_declared = seen.pool.context.value, False


async def _rounds(campaign: Campaign) -> None:
    seen = campaign.seen
    capacity = seen.pool.pool.value if seen.pool is not None and seen.pool.pool.known else None
    while campaign.round < MOST_ROUNDS and (seen.reused < CLAIMS or campaign.round < LEAST_ROUNDS):
        campaign.shared = campaign.round % 2 == 1
        seen.shared_rounds += campaign.shared
        await _round(campaign, capacity)
        if seen.finds or seen.denied or seen.oversize_taken or (campaign.round >= 1 and not seen.claims):
            return
        if campaign.round + 1 >= LEAST_ROUNDS and not seen.reused:
            return  # nothing is ever reused, or nothing says so: more rounds show nothing
        campaign.round += 1


async def _round(campaign: Campaign, capacity: int | None) -> None:
    seen = campaign.seen
    free = None if capacity is None else max(1, capacity - int(seen.in_use_before or 0))
    fill = UNKNOWN_FILL if free is None else max(1, min(MOST_SEEDS, math.floor(FILL * free)))
    seeded = await campaign.seed(fill)
    if not seeded:
        return
    gone = await campaign.release(seeded)
    # The largest claim takes its whole size out of the pool.
    count = max(1, len(gone) - (seen.largest or 1) + 1)
    got = await campaign.claims(count, free, len(seeded))
    if not seen.finds:
        await campaign.stale(gone, got[:8])
    for held in got:
        await campaign.all_of("end", 1, held)
        held.release = "end"
    for held in seeded:
        if held not in gone:
            await campaign.all_of("end", 0, held)
    if not seen.finds:
        await campaign.late()
        await campaign.cancel()


PROBE = SessionCheck()
