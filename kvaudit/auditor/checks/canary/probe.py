"""Plants markers as one tenant and searches every answer for those of others, at lengths around the limit. What
the check is for: `kvaudit.auditor.checks.canary`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvaudit.auditor.checks.canary import CHECK
from kvaudit.auditor.checks.canary.seen import CanarySeen, Sighting
from kvaudit.auditor.checks.canary.verdict import judge_canary
from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.evidence_source import labelled_evidence
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome, Plan, Prober, Stop
from kvaudit.auditor.checks.trials import harmed, trial, unaskable, withheld
from kvaudit.auditor.text.markers import Marker, draw_marker
from kvaudit.auditor.text.matcher import HIT_RUN, Match, Matcher, frame_numbers
from kvaudit.auditor.text.prompts import Tail, draw_nonce
from kvaudit.auditor.text.spelling import Prompt
from kvaudit.auditor.verdict import Result

ROUNDS = 60
"""Planned rounds of a nightly run: a bound of 4.9 % where everything surfaces and is dirtied."""

LEAST_ROUNDS = 20
ANSWER_TOKENS = 128
"""Measured surfacing: .27 at 32 tokens, .63 at 64, 1.00 at 128."""

CONTROL_TOKENS = 512
SURFACING_TRIALS = 10
SURFACING_TOKENS = 3000
REPEATS_OF_SUSPICION = 10
MORE_AFTER_A_HIT = 5
DECOYS = 60
OVERHEAD = 4096
"""Tokens of health requests."""

REPLAYED_ROUNDS = 3

NO_NUMBER = "the text that came back did not contain a record's number"
NO_FRAME = "how long the planted records are is not known"


@dataclass(frozen=True, slots=True)
class Cell:
    """One request of a round."""

    name: str
    tokens: int
    above: bool = False  # the limit: to be refused


def cells(limits: Limits, consent: bool) -> tuple[Cell, ...]:
    """The requests of a round in their order: victim, the lengths that should be refused, a short
    control, and the longest accepted length last."""
    n, longest = limits.first_rejected, limits.longest_safe
    if n is None or longest is None:
        return ()
    order = [Cell("victim", longest)]
    if consent or not limits.dangerous:
        order += [Cell("N", n, True), Cell("N+1", n + 1, True)]
        if limits.context is not None and limits.context > n + 1:
            order.append(Cell("midpoint", (n + limits.context) // 2, True))
    order += [Cell("control", min(CONTROL_TOKENS, longest)), Cell("longest", longest)]
    return tuple(order)


class CanaryProbe:
    """Plants markers as one tenant and reads the answers of the other, at boundary lengths."""

    id = CHECK.id

    def plan(self, prober: Prober) -> Plan:
        """Requests and accepted prompt tokens of the planned rounds and the surfacing control."""
        order = cells(prober.limits, prober.consent)
        limit = prober.limits.first_rejected or 0
        each = sum(cell.tokens for cell in order if cell.tokens < limit)
        rounds = _rounds(prober, each)
        return Plan(
            rounds * len(order) + SURFACING_TRIALS,
            rounds * each + SURFACING_TRIALS * SURFACING_TOKENS,
            float(rounds * len(order)),
            rounds,
        )

    async def observe(self, audit: Audit) -> CanarySeen:
        """Send the planned rounds and replays; stops at the first verified hit, and where harm is seen."""
        prober = audit.prober
        if prober is None:
            return CanarySeen(None, unaskable="two tenants' keys")
        seen = CanarySeen(prober.limits, prober.tenants)
        if len(prober.tenants) < 2:
            seen.unaskable = "a second tenant's key"
            return seen
        seen.withheld = withheld(prober.limits, prober.consent)
        order = cells(prober.limits, prober.consent)
        if not order:
            seen.stopped = "The limit of this target is unknown, so no boundary length can be chosen."
            return seen
        seen.planned = self.plan(prober).rounds
        seen.scope = prober.scope
        sender = CanarySender(prober, seen)
        try:
            await sender.surfacing()
            await sender.rounds(order)
            await sender.replay(audit.replayed, prober.limits)
        except Stop as stop:
            seen.stopped = stop.reason
        finally:
            await sender.count()
        return seen

    def judge(self, seen: CanarySeen, audit: Audit) -> Result:
        if seen.unaskable:
            return unaskable(self.id, audit, seen.unaskable)
        return judge_canary(seen)


def _rounds(prober: Prober, tokens_each: int) -> int:
    """n is fixed before the run, as what the ceiling allows beside the surfacing control, the calibration
    and one request more (a refused one must fit the budget as well until it is refused)."""
    if prober.rounds_ceiling is None or tokens_each <= 0:
        return ROUNDS
    beside = SURFACING_TRIALS * SURFACING_TOKENS + OVERHEAD + (prober.limits.context or 0) + 1
    return max(0, min(ROUNDS, (prober.rounds_ceiling - beside) // tokens_each))


class CanarySender:
    """Sends the rounds. Tenants take turns over the requests of a round, and a round begins with the other
    tenant than the last one did: each is victim and attacker at every length."""

    def __init__(self, prober: Prober, seen: CanarySeen) -> None:
        self._prober, self._seen = prober, seen
        seen.decoys = [draw_marker(prober.draw, decoy=True) for _ in range(DECOYS)]
        seen.earlier = len(prober.earlier)
        self._earlier = frozenset(prober.earlier)
        self._matcher = Matcher([*seen.decoys, *prober.earlier])
        self._sent = 0
        self._turn = 0
        self._frames: dict[Marker, int] = {}  # tokens of a frame, where known
        self._before: dict[str, float] = {}

    async def surfacing(self) -> None:
        """The positive control: would stale pages turn into marker text at all? One tenant's own
        frames, cut at a random page, with no question."""
        seen, prober = self._seen, self._prober
        limits = prober.limits
        top = min(SURFACING_TOKENS, (limits.longest_safe or SURFACING_TOKENS) - 1)
        for _ in range(SURFACING_TRIALS):
            marker = draw_marker(prober.draw, tenant=prober.tenants[0])
            pages = max(1, (top - top // 3) // limits.page)
            length = max(256, top // 3 + prober.draw(pages) * limits.page)
            prompt = await prober.framed(marker, length, Tail(), tenant=prober.tenants[0])
            self._plant(marker, prompt)
            reply = await prober.ask(prober.tenants[0], prompt, max_tokens=prober.room(length, ANSWER_TOKENS))
            found = trial("surfacing", reply, tenant=prober.tenants[0], asked=None, room=ANSWER_TOKENS)
            seen.trials.append(found)
            if found.outcome is Outcome.ANSWERED:
                seen.surfacing_trials += 1
                seen.surfaced += any(match.run >= HIT_RUN for match in Matcher([marker]).find(reply.text))

    async def rounds(self, order: tuple[Cell, ...]) -> None:
        """Send the planned rounds, then test that the target is healthy."""
        seen = self._seen
        self._before = dict(await self._prober.counters())
        for number in range(seen.planned):
            self._turn = number
            for cell in order:
                if cell.name not in seen.left_out:
                    await self._cell(cell, number)
            seen.rounds_done += 1
            self._leave_out(order)
        seen.unhealthy = await self._prober.healthy()

    async def replay(self, lengths: Sequence[int], limits: Limits) -> None:
        """Lengths that leaked in an earlier run, after the rounds and behind a victim of their own."""
        longest, limit = limits.longest_safe, limits.first_rejected
        if not lengths or longest is None or limit is None:
            return
        allowed = [tokens for tokens in lengths if tokens < limit - 8 or not self._seen.withheld]
        order = [Cell("victim", longest)]
        order += [Cell(f"replayed {tokens}", tokens, tokens >= limit) for tokens in allowed]
        for number in range(self._seen.planned, self._seen.planned + REPLAYED_ROUNDS):
            self._turn = number
            for cell in order:
                if cell.name not in self._seen.left_out:
                    await self._cell(cell, number)
            self._leave_out(tuple(order))
        self._seen.unhealthy = await self._prober.healthy()

    def _leave_out(self, order: tuple[Cell, ...]) -> None:
        """Lengths above the limit that twice brought no answer but a failing server are not sent again:
        each may hold pages for minutes, and says nothing."""
        for cell in order:
            tried = [one for one in self._seen.trials if one.name == cell.name]
            lost = [one for one in tried if one.late or one.outcome in (Outcome.FAILED, Outcome.BROKEN)]
            if cell.above and len(tried) >= 2 and len(lost) == len(tried):
                self._seen.left_out[cell.name] = lost[-1].outcome.value

    async def _cell(self, cell: Cell, number: int) -> None:
        sightings = await self._ask(cell, number)
        hits = [one for one in sightings if one.verified]
        if hits:
            await self._after_a_hit(cell, number, hits[0])
        if any(one.suspicious for one in sightings):
            for _ in range(REPEATS_OF_SUSPICION):
                again = await self._ask(cell, number)
                if hits := [one for one in again if one.verified]:
                    await self._after_a_hit(cell, number, hits[0])

    async def _after_a_hit(self, cell: Cell, number: int, hit: Sighting) -> None:
        """One verified hit decides; a few more requests, with consent, say how often it happens."""
        if self._prober.consent:
            for _ in range(MORE_AFTER_A_HIT):
                self._seen.repeats += 1
                self._seen.repeat_hits += any(one.verified for one in await self._ask(cell, number))
        raise Stop(f"Stopped at the first verified hit: {hit.kind}, at {hit.length:,} tokens.", harm=True)

    async def _ask(self, cell: Cell, number: int) -> list[Sighting]:
        prober, seen = self._prober, self._seen
        tenant = prober.tenants[self._turn % 2]
        self._turn += 1
        self._sent += 1
        marker = draw_marker(prober.draw, tenant=tenant, request=str(self._sent))
        nonce = draw_nonce(prober.draw, without=marker.words)
        prompt = await prober.framed(marker, cell.tokens, nonce.tail, tenant=tenant)
        self._plant(marker, prompt)
        room = prober.room(cell.tokens, ANSWER_TOKENS)
        reply = await prober.ask(tenant, prompt, max_tokens=room)
        noted = trial(cell.name, reply, tenant=tenant, asked=prompt.contents, room=room, repeat=number)
        seen.trials.append(noted)
        seen.evidence.extend(labelled_evidence(reply, noted))
        if reply.outcome is Outcome.ANSWERED:
            seen.own_tokens += cell.tokens + (reply.completion_tokens or 0)
        # Truncated and cancelled answers are searched too: a marker in half an answer is a leak.
        sightings = [
            self._sighting(match, tenant, cell, number, reply.text)
            for match in self._matcher.find(reply.text, own=marker)
        ]
        seen.sightings.extend(sightings)
        if not any(one.verified for one in sightings) and (problem := await harmed(prober, reply)):
            seen.unhealthy = problem
            raise Stop(f"Stopped at {cell.tokens:,} tokens: {problem}", harm=True)
        return sightings

    def _plant(self, marker: Marker, prompt: Prompt) -> None:
        """Live from before it is sent."""
        self._matcher.add(marker)
        self._seen.planted.append(marker)
        if prompt.frame_tokens:
            self._frames[marker] = prompt.frame_tokens

    def _sighting(self, match: Match, tenant: str, cell: Cell, number: int, text: str) -> Sighting:
        marker: Marker = match.marker
        page, frame = self._prober.limits.page, self._frames.get(marker, 0)
        ordinals = tuple(
            dict.fromkeys(number * frame // page for number in (frame_numbers(text, marker) if frame else ()))
        )
        return Sighting(
            reader=tenant,
            planted_by=marker.tenant,
            words=match.matched,
            run=match.run,
            length=cell.tokens,
            cell=cell.name,
            round=number,
            ordinals=ordinals,
            decoy=marker.decoy,
            suspicious=match.suspicious,
            earlier_run=marker in self._earlier,
            no_ordinals="" if ordinals else NO_NUMBER if frame else NO_FRAME,
        )

    async def count(self) -> None:
        """What the engine served since the rounds began, by its own counters: the share that was
        ours is the dirtying c. A disaggregated pair counts a prompt on both sides: the largest counts."""
        after = dict(await self._prober.counters())
        moved = [
            after[name] - before
            for name, before in self._before.items()
            if name.startswith("served_tokens/") and name in after
        ]
        if moved and max(moved) > 0:
            self._seen.served_tokens = max(moved)


PROBE = CanaryProbe()
