"""Sends prompts of exact lengths around the limit and notes how each is answered. What the check is for:
`kvaudit.auditor.checks.rejection`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.evidence_source import labelled_evidence
from kvaudit.auditor.checks.prober_protocol import Outcome, Plan, Prober, Stop
from kvaudit.auditor.checks.rejection import CHECK
from kvaudit.auditor.checks.rejection.ladder import CLOSE, LONGEST_SEARCHED, Rung, bisect, rungs
from kvaudit.auditor.checks.rejection.seen import LadderSeen, mostly_wrong
from kvaudit.auditor.checks.rejection.verdict import judge_ladder
from kvaudit.auditor.checks.trials import Trial, idle, pool_use, trial, unaskable, withheld
from kvaudit.auditor.text.markers import draw_marker
from kvaudit.auditor.text.prompts import draw_nonce
from kvaudit.auditor.verdict import Result

WANTED = 24
"""Output tokens asked for where there is room."""

SETTLING = 60.0
"""Seconds in which the pool must be back to where it was, once nothing runs."""

CONFIRMATIONS = 3
"""A wrong, empty, cut or failing rung is asked up to this often; two of three decide."""

IN_DOUBT = 10
"""A rung that was wrong once of three is asked this often."""


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
        ladder = rungs(limits.first_rejected, limits.context, limits.page)
        accepted = sum(rung.tokens * rung.repeats for rung in ladder if rung.tokens < limits.first_rejected)
        requests = sum(rung.repeats for rung in ladder)
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
            if seen.first_rejected is None:
                await sender.locate()
            if seen.first_rejected is not None:
                steps = rungs(
                    seen.first_rejected, seen.context, limits.page, audit.rules.edge_limit, audit.replayed
                )
                seen.planned = sum(rung.repeats for rung in steps)
                await sender.all(steps)
            seen.pool_after = await sender.settled()
        except Stop as stop:
            seen.stopped = stop.reason
        return seen

    def judge(self, seen: LadderSeen, audit: Audit) -> Result:
        if seen.unaskable:
            return unaskable(self.id, audit, "one tenant's key")
        return judge_ladder(seen)


class RejectionSender:
    """Sends the rungs and notes what came back."""

    def __init__(self, prober: Prober, seen: LadderSeen) -> None:
        self._prober, self._seen = prober, seen
        self._late = 0
        self._confirmed: set[str] = set()

    async def all(self, steps: Sequence[Rung]) -> None:
        for repeat in range(max(rung.repeats for rung in steps)):
            for rung in steps:
                if repeat < rung.repeats and rung.name not in self._confirmed and not self._seen.unhealthy:
                    await self._rung(rung, repeat)

    async def _rung(self, rung: Rung, repeat: int) -> None:
        found = await self.ask(rung.name, rung.tokens, repeat)
        doubtful = found.wrong or found.outcome in (Outcome.EMPTY, Outcome.CUT, Outcome.FAILED)
        if doubtful and not found.late and rung.name not in self._confirmed:
            self._confirmed.add(rung.name)  # nothing decides once: it is asked again at once
            for again in range(1, CONFIRMATIONS):
                await self.ask(rung.name, rung.tokens, again)
            if found.wrong and not mostly_wrong(
                self._of(rung.name)
            ):  # once of three: weak model, or now and then
                for again in range(CONFIRMATIONS, IN_DOUBT):
                    await self.ask(rung.name, rung.tokens, again)
        if mostly_wrong(self._of(rung.name)):
            self._seen.stopped = f"Stopped at {rung.tokens:,} tokens: answers without their own nonce."
            raise Stop(self._seen.stopped, harm=True)
        if found.late:
            await self._timed_out(found)
        elif found.outcome in (Outcome.REFUSED, Outcome.FAILED, Outcome.CUT, Outcome.EMPTY) or found.wrong:
            self._seen.unhealthy = await self._prober.healthy()

    def _of(self, name: str) -> list[Trial]:
        return [one for one in self._seen.trials if one.name == name]

    async def _timed_out(self, found: Trial) -> None:
        self._seen.unhealthy = await self._prober.healthy()
        limit = self._seen.first_rejected
        if limit is not None and found.tokens >= limit:
            self._late += 1
            if self._late >= 2:
                raise Stop("Stopped after two prompts at or above the limit that were never answered.")

    async def ask(self, name: str, tokens: int, repeat: int) -> Trial:
        prober = self._prober
        marker = draw_marker(prober.draw)
        nonce = draw_nonce(prober.draw, without=marker.words)
        tenant = prober.tenants[0]
        prompt = await prober.framed(marker, tokens, nonce.tail, tenant=tenant)
        room = prober.room(tokens, WANTED)
        reply = await prober.ask(tenant, prompt, max_tokens=room, stream=repeat % 2 == 0)
        found = trial(name, reply, tenant=tenant, asked=prompt.contents, room=room, repeat=repeat)
        self._seen.trials.append(found)
        self._seen.evidence.extend(labelled_evidence(reply, found))
        return found

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
        """Find N by bisection between a length that is read and one that is not, to within 64 tokens."""

        async def read(tokens: int) -> bool | None:
            found = await self.ask("search", tokens, 0)
            if found.outcome is Outcome.REFUSED:
                self._seen.unhealthy = await self._prober.healthy()
                return False
            if found.wrong:
                if (await self.ask("search", tokens, 1)).wrong:
                    raise Stop(f"Stopped at {tokens:,} tokens: answers without their own nonce.", harm=True)
                return None
            if found.late:
                self._seen.unhealthy = await self._prober.healthy()
            return True if found.read else None

        self._seen.first_rejected = await bisect(read, self._seen.context)
        self._seen.located = self._seen.first_rejected is not None


PROBE = RejectionProbe()
