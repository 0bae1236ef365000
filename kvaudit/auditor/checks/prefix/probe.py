"""Stores prefixes as one tenant, asks for them as both, and counts and times the hits. What the check is for:
`kvaudit.auditor.checks.prefix`."""

from __future__ import annotations

from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.prefix import CHECK
from kvaudit.auditor.checks.prefix.contents import QUESTIONS, lengths
from kvaudit.auditor.checks.prefix.responses import GAP
from kvaudit.auditor.checks.prefix.seen import ALPHA, PrefixSeen
from kvaudit.auditor.checks.prefix.sender import LOOKS, PREFIX_TOKENS, REPEATS, PrefixSender
from kvaudit.auditor.checks.prefix.verdict import judge_prefix
from kvaudit.auditor.checks.prober_protocol import Plan, Prober, Stop
from kvaudit.auditor.checks.trials import unaskable
from kvaudit.auditor.verdict import Result


class PrefixProbe:
    """Sends one tenant's prefix as another tenant and compares cached tokens, times and answers."""

    id = CHECK.id

    def plan(self, prober: Prober) -> Plan:
        timed = 5 * LOOKS[0]  # two of three timed arms store first
        routes = len(prober.modes)
        small = routes * REPEATS * (3 + 3 + 3 + 2 * 4)  # counts, salts, lots, twins in two forms
        texts = REPEATS * (1 + QUESTIONS)
        fillers = (prober.limits.largest_pool or prober.limits.pool or 0) * REPEATS
        tokens = (timed + small + 20) * PREFIX_TOKENS + fillers + texts * sum(lengths(prober.limits))
        return Plan(timed + small + 20 + 3 * texts, tokens, 0.2 * timed + 60 + REPEATS * GAP)

    async def observe(self, audit: Audit) -> PrefixSeen:
        prober = audit.prober
        if prober is None:
            return PrefixSeen(unaskable="two tenants' keys")
        seen = PrefixSeen(prober.tenants, _tolerance(prober))
        seen.entry_sets_salts = prober.entry_sets_salts
        seen.salted = bool(prober.salts)
        if len(prober.tenants) < 2:
            seen.unaskable = "a second tenant's key"
            return seen
        sender = PrefixSender(prober, seen)
        try:
            await sender.counts()
            seen.parts += 1
            await sender.contents()
            seen.parts += 1
            if not _crossed(seen):  # what counts have shown needs no overflowing pool
                await sender.tiers()
            seen.parts += 1
            await sender.responses()
            await sender.twins()
            seen.parts += 1
            if not _crossed(seen):
                await sender.times(LOOKS[0])
                if _undecided(seen):
                    await sender.times(LOOKS[1] - LOOKS[0])
        except Stop as stop:
            seen.stopped = stop.reason
        return seen

    def judge(self, seen: PrefixSeen, audit: Audit) -> Result:
        if seen.unaskable:
            return unaskable(self.id, audit, seen.unaskable)
        return judge_prefix(seen)


def _tolerance(prober: Prober) -> int:
    """Cached tokens that another tenant's prompt may honestly show: a first page, and a system prompt that the target
    puts before all of them, rounded up to a page."""
    page = prober.limits.page
    return page + -(-prober.most_added // page) * page


def _crossed(seen: PrefixSeen) -> bool:
    """Whether counts already decide: no timing is needed then."""
    cross = [one for one in seen.counts if one.arm in ("cross", "tier cross")]
    return sum((one.cached or 0) > seen.tolerance for one in cross) >= 2


def _undecided(seen: PrefixSeen) -> bool:
    from kvaudit.auditor.stats.timing import faster

    if not seen.hits or not seen.misses or not seen.own_hits:
        return False
    return faster(seen.own_hits, seen.misses).p >= ALPHA or faster(seen.hits, seen.misses).p < 1e-2


PROBE = PrefixProbe()
