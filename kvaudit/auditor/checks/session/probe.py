"""Plays the rounds of two accounts against a session API, within its pool. What the check is for:
`kvaudit.auditor.checks.session`."""

from __future__ import annotations

import math

from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.prober_protocol import Plan, Prober, Stop
from kvaudit.auditor.checks.session import CHECK
from kvaudit.auditor.checks.session.api import SessionPlan, UnusablePlan
from kvaudit.auditor.checks.session.claims import (
    FILL,
    LEAST_ROUNDS,
    MOST_ROUNDS,
    MOST_SEEDS,
    UNKNOWN_FILL,
    SessionSender,
)
from kvaudit.auditor.checks.session.seen import CLAIMS, SessionSeen
from kvaudit.auditor.checks.session.verdict import judge_session, missing_parts, why_unasked
from kvaudit.auditor.verdict import Result


class SessionProbe:
    """Reads `audit.session`, a `kvaudit.auditor.checks.session.api.SessionWire`, and needs no prober."""

    id = CHECK.id

    def plan(self, prober: Prober) -> Plan:
        """No prompt tokens. The number of requests depends on the pool; this is for one of unknown size."""
        return Plan(LEAST_ROUNDS * UNKNOWN_FILL * 12, 0, 60.0, LEAST_ROUNDS, "requests to the session API")

    async def observe(self, audit: Audit) -> SessionSeen:
        """Play the rounds; a find, a refused key or a stop ends them."""
        wire = audit.session
        if wire is None:
            return SessionSeen(unaskable="a description of the session API (session: in the fleet file)")
        seen = SessionSeen(
            tuple(wire.accounts), not_there=wire.plan.without, undeclared=missing_parts(wire.plan)
        )
        if len(wire.accounts) < 2:
            seen.unaskable = "a second account's key"
            return seen
        sender = SessionSender(wire, seen)
        try:
            await _before(sender, wire.plan)
            if not seen.pool_problem:
                await _rounds(sender)
            if seen.in_use_before is not None and not seen.finds:
                seen.in_use_after = await sender.settled(seen.in_use_before)
        except (Stop, UnusablePlan) as stop:
            seen.stopped = str(stop)
        return seen

    def judge(self, seen: SessionSeen, audit: Audit) -> Result:
        return why_unasked(seen, audit.why_no_session) if seen.unaskable else judge_session(seen)


async def _before(sender: SessionSender, plan: SessionPlan) -> None:
    seen = sender.seen
    seen.largest, seen.largest_declared = plan.largest, plan.largest is not None
    if not plan.pool_path:
        return
    seen.pool = await sender.read_pool()
    if seen.pool is None:
        return
    if not seen.pool.pool.known:
        seen.pool_problem = f"its capacity is not where it was said to be: {seen.pool.pool.source}"
    seen.in_use_before = seen.pool.counters.get("in_use")
    if seen.pool.context.known:
        seen.largest, seen.largest_declared = seen.pool.context.value, False


async def _rounds(sender: SessionSender) -> None:
    seen = sender.seen
    capacity = seen.pool.pool.value if seen.pool is not None and seen.pool.pool.known else None
    while sender.round < MOST_ROUNDS and (seen.reused < CLAIMS or sender.round < LEAST_ROUNDS):
        sender.shared = sender.round % 2 == 1
        seen.shared_rounds += sender.shared
        await _round(sender, capacity)
        if seen.finds or seen.denied or seen.oversize_taken or (sender.round >= 1 and not seen.claims):
            return
        if sender.round + 1 >= LEAST_ROUNDS and not seen.reused:
            return  # nothing is ever reused, or nothing says so: more rounds show nothing
        sender.round += 1


async def _round(sender: SessionSender, capacity: int | None) -> None:
    seen = sender.seen
    free = None if capacity is None else max(1, capacity - int(seen.in_use_before or 0))
    fill = UNKNOWN_FILL if free is None else max(1, min(MOST_SEEDS, math.floor(FILL * free)))
    seeded = await sender.seed(fill)
    if not seeded:
        return
    gone = await sender.release(seeded)
    # The largest claim takes its whole size out of the pool.
    count = max(1, len(gone) - (seen.largest or 1) + 1)
    got = await sender.claims(count, free, len(seeded))
    if not seen.finds:
        await sender.stale(gone, got[:8])
    for held in got:
        await sender.all_of("end", 1, held)
        held.release = "end"
    for held in seeded:
        if held not in gone:
            await sender.all_of("end", 0, held)
    if not seen.finds:
        await sender.late()
        await sender.cancel()


PROBE = SessionProbe()
