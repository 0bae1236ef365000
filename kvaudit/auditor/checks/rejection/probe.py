"""Sends prompts of exact lengths around the limit and notes how each is answered. What the check is for:
`kvaudit.auditor.checks.rejection`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kvaudit.auditor.checks.asker import CONTROL_TOKENS, Asker, Cell
from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.prober_protocol import Outcome, Plan, Prober, Stop
from kvaudit.auditor.checks.rejection import CHECK
from kvaudit.auditor.checks.rejection.ladder import CLOSE, LONGEST_SEARCHED, Rung, bisect, rungs
from kvaudit.auditor.checks.rejection.seen import SEARCH, LadderSeen, mostly_wrong
from kvaudit.auditor.checks.rejection.verdict import judge_ladder
from kvaudit.auditor.checks.trials import Trial, idle, pool_use, unaskable, withheld
from kvaudit.auditor.checks.ways import Way
from kvaudit.auditor.verdict import Result

SETTLING = 60.0
"""Seconds in which the pool must be back to where it was, once nothing runs."""

CONFIRMATIONS = 3
"""An empty, cut or failing rung is asked up to this often; two of three decide."""

IN_DOUBT = 10
"""A rung at or above the limit that was answered without its nonce is asked this often: a refusal costs little."""


class RejectionProbe:
    """Asks one tenant's prompts at N-64 to C+1 and reads the body of every answer."""

    id = CHECK.id

    def plan(self, prober: Prober) -> Plan:
        """What the ladder sends; refused prompts cost the engine nothing."""
        limits = prober.limits
        if withheld(limits, prober.consent):
            return Plan(0, 0, 0.0, note="withheld: these lengths need consent")
        if limits.first_rejected is None:
            top = limits.context or LONGEST_SEARCHED
            steps = math.ceil(math.log2(top / CLOSE)) + 20
            return Plan(
                steps * 2, steps * top // 2, 2.0 * steps, note="the limit is unknown and is searched first"
            )
        ladder = rungs(limits.first_rejected, limits.context, limits.page, routes=len(prober.modes))
        controls = [
            CONTROL_TOKENS + prober.templates.get((mode, prober.tenants[0]), 0) for mode in prober.modes
        ]
        accepted = sum(controls) + sum(
            rung.tokens * rung.repeats for rung in ladder if rung.tokens < limits.first_rejected
        )
        requests = len(controls) + sum(rung.repeats for rung in ladder)
        return Plan(requests * 2, accepted, 2.0 * requests, note="one health request after each refusal")

    async def observe(self, audit: Audit) -> LadderSeen:
        prober = audit.prober
        if prober is None:
            return LadderSeen(None, None, unaskable=True)
        limits = prober.limits
        seen = LadderSeen(
            limits.first_rejected,
            limits.context,
            edge_limit=audit.rules.edge_limit,
            page=limits.page,
            earlier_use=audit.history.pool_use_after if audit.history else (),
        )
        if withheld(limits, prober.consent):
            seen.withheld = True
            return seen
        sender = RejectionSender(prober, seen)
        try:
            seen.pool_before = await sender.settled()
            await sender.climb(seen.context, audit.rules.edge_limit, audit.replayed)
            seen.pool_after = await sender.settled()
        except Stop as stop:
            seen.stopped = stop.reason
        seen.unhealthy = seen.unhealthy or sender.unhealthy
        return seen

    def judge(self, seen: LadderSeen, audit: Audit) -> Result:
        if seen.unaskable:
            return unaskable(self.id, audit, "one tenant's key")
        return judge_ladder(seen)


class RejectionSender:
    """Sends the rungs and notes what came back."""

    def __init__(self, prober: Prober, seen: LadderSeen) -> None:
        self._prober, self._seen = prober, seen
        self._tenant = prober.tenants[0]
        self._asker = Asker(prober, seen.trials, seen.evidence, seen.misses)
        self._late = 0
        self._confirmed: set[tuple[str, Way]] = set()

    async def climb(self, context: int | None, edge_limit: int | None, replayed: Sequence[int]) -> None:
        """Ask short prompts first: who does not give their nonce cannot be blamed at the limit. Then every rung."""
        seen = self._seen
        if not await self._asker.controls(self._tenant):
            return
        if seen.first_rejected is None:
            await self.locate()
        prober = self._prober
        steps = rungs(
            seen.first_rejected, context, prober.limits.page, edge_limit, replayed, len(prober.modes)
        )
        self._asker.planned = seen.planned = sum(rung.repeats for rung in steps)
        for repeat in range(max((rung.repeats for rung in steps), default=0)):
            for at, rung in enumerate(steps):
                if repeat < rung.repeats and not seen.unhealthy:
                    # what is asked once is asked in another way than its neighbours
                    first = 0 if rung.repeats > 1 else at
                    way = self._asker.ways.next(rung.name, rung.tokens, first)
                    if (rung.name, way) not in self._confirmed:
                        await self._rung(rung, repeat, way)

    @property
    def unhealthy(self) -> str:
        return self._asker.unhealthy

    async def _rung(self, rung: Rung, repeat: int, way: Way) -> None:
        found = await self.ask(rung.name, rung.tokens, repeat, way)
        if found.late:
            self._never_answered(found)
            return
        if found.missed or found.outcome in (Outcome.EMPTY, Outcome.CUT, Outcome.FAILED, Outcome.HIDDEN):
            self._confirmed.add((rung.name, way))  # nothing decides once: it is asked again at once
            await self._confirm(rung, found, way)
        if found.missed or found.outcome in (Outcome.REFUSED, Outcome.HIDDEN, Outcome.CUT):
            self._seen.unhealthy = await self._prober.healthy()

    async def _confirm(self, rung: Rung, found: Trial, way: Way) -> None:
        """Ask a doubtful rung up to three times in the same way, and one that is answered above the limit without its
        nonce up to ten; two of those decide. Below the limit the follow-up of the miss has asked enough."""
        above = self._seen.above(rung.tokens)
        most = CONFIRMATIONS if not found.wrong else IN_DOUBT if above else 0
        for again in range(len(self._of(rung.name, way)), most):
            if above and mostly_wrong(self._of(rung.name, way)):
                break
            answer = await self._asker.send(Cell(rung.name, rung.tokens, self._tenant, way=way), again)
            self._seen.misses.note(answer.trial)
        if above and mostly_wrong(self._of(rung.name, way)):
            raise Stop(f"Stopped at {rung.tokens:,} tokens: answers without their own nonce.", harm=True)

    def _of(self, name: str, way: Way) -> list[Trial]:
        return [one for one in self._seen.trials if one.name == name and one.way == str(way)]

    def _never_answered(self, found: Trial) -> None:
        self._late += self._seen.above(found.tokens)
        if self._late >= 2:
            raise Stop("Stopped after two prompts at or above the limit that were never answered.")

    async def ask(self, name: str, tokens: int, repeat: int, way: Way) -> Trial:
        """One prompt; a missed one is followed up, and below the limit compared with short ones."""
        below = not self._seen.above(tokens) and name != SEARCH
        cell = Cell(name, tokens, self._tenant, way=way)
        return (await self._asker.ask(cell, repeat, compare=below)).trial

    async def settled(self) -> dict[str, float]:
        """Pool use per node once nothing runs or waits, looked at for up to a minute and taken at its
        lowest: what stays in use then is held by nobody. Empty where it is not shown or never quiet."""
        lowest: dict[str, float] = {}
        before = self._seen.pool_before
        until = self._prober.now() + SETTLING
        while True:
            counters = await self._prober.counters()
            if idle(counters):
                for node, used in pool_use(counters).items():
                    lowest[node] = min(used, lowest.get(node, used))
            quiet = bool(lowest) and all(used <= before.get(node, used) for node, used in lowest.items())
            if quiet or not pool_use(counters) or self._prober.now() >= until:
                return lowest
            await self._prober.sleep(2.0)

    async def locate(self) -> None:
        """Find N by bisection between a length that is read and one that is not, to within 64 tokens, in one way."""
        way = Way(self._asker.ways.modes[0], True)

        async def read(tokens: int) -> bool | None:
            found = await self.ask(SEARCH, tokens, 0, way)
            if found.outcome in (Outcome.REFUSED, Outcome.HIDDEN):
                self._seen.unhealthy = await self._prober.healthy()
                return False
            if found.missed:
                if mostly_wrong([one for one in self._of(SEARCH, way) if one.tokens == tokens]):
                    raise Stop(f"Stopped at {tokens:,} tokens: answers without their own nonce.", harm=True)
                return None
            return True if found.read else None

        self._seen.first_rejected = await bisect(read, self._seen.context)
        self._seen.located = self._seen.first_rejected is not None


PROBE = RejectionProbe()
