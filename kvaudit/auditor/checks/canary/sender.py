"""Sends the rounds of a canary run and notes what came back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from kvaudit.auditor.checks.canary.design import (
    LONGEST_TEXT,
    NONCE,
    PHRASE,
    PHRASES,
    SURFACING,
    WINDOW,
    Round,
    Way,
)
from kvaudit.auditor.checks.canary.seen import Asked, CanarySeen, Sighting, UnknownAnswer
from kvaudit.auditor.checks.canary.strata import FINE
from kvaudit.auditor.checks.evidence_source import labelled_evidence
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome, Prober, Reply, Stop
from kvaudit.auditor.checks.trials import Trial, harmed, trial
from kvaudit.auditor.engines.completion import Mode
from kvaudit.auditor.text.markers import Marker, draw_marker
from kvaudit.auditor.text.matcher import Match, Matcher, frame_numbers
from kvaudit.auditor.text.prompts import WINDOW_FRAMES, Tail, draw_leads, draw_nonce, phrase_tail
from kvaudit.auditor.text.spelling import Prompt

ANSWER_TOKENS = 128
"""Measured surfacing: .27 at 32 tokens, .63 at 64, 1.00 at 128."""

CONTROL_TOKENS = 512
CONTROLS_EACH = 20
"""Short prompts of each way to ask before the rounds, that ask for their phrase. With those of sixty rounds they are
thirty, fewer than which say nothing of a model's own words."""

LEAST_BARE = 64
"""Tokens at the end of a prompt that hold no phrase, and at least a page: who reads only these cannot say it."""

ENOUGH_WINDOWS = 5
"""Answers after which a model that rarely finds its phrase in a window is not asked that way any more."""

LEAST_VICTIM = 2_048
REPEATS_OF_SUSPICION = 10
MORE_AFTER_A_HIT = 5
DECOYS = 60
REPLAYED_ROUNDS = 3

NO_NUMBER = "the text that came back did not contain a record's number"
NO_FRAME = "how long the planted records are is not known"


@dataclass(frozen=True, slots=True)
class Cell:
    """One request of a round."""

    name: str
    tokens: int
    above: bool = False  # the limit: to be refused
    drawn: bool = False


def cells(limits: Limits, consent: bool, drawn: Cell) -> tuple[Cell, ...]:
    """The requests of a round in their order: a victim at least as long as what may read its pages, the lengths that
    should be refused, a short control, and the drawn length last, since an accepted request overwrites the pages
    that the others would read."""
    n, longest = limits.first_rejected, limits.longest_safe
    if n is None or longest is None:
        return ()
    order = [Cell("victim", min(longest, max(drawn.tokens + limits.page, LEAST_VICTIM)))]
    if consent or not limits.dangerous:
        order += [Cell("N", n, True), Cell("N+1", n + 1, True)]
        if limits.context is not None and limits.context > n + 1:
            order.append(Cell("midpoint", (n + limits.context) // 2, True))
    order += [Cell("control", min(CONTROL_TOKENS, longest)), drawn]
    return tuple(order)


class CanarySender:
    """Sends for one run; what it notes is its observation's."""

    def __init__(self, prober: Prober, seen: CanarySeen) -> None:
        self._prober, self._seen = prober, seen
        seen.decoys = [draw_marker(prober.draw, decoy=True) for _ in range(DECOYS)]
        seen.earlier = len(prober.earlier)
        self._earlier = frozenset(prober.earlier)
        self._matcher = Matcher([*seen.decoys, *prober.earlier])
        self._sent = 0
        self._frames: dict[Marker, int] = {}  # tokens of a frame, where known
        self._before: dict[str, float] = {}
        self._phrase_fits = 0  # tokens from which a prompt holds its phrase before its last page

    # -- what is sent --------------------------------------------------------------------------

    async def surfacing(self) -> None:
        """The positive control of each way to ask: would a stranger's pages turn into the stranger's phrase? The
        pages are one's own and the question is the round's, so the own phrase comes back where a stranger's would."""
        prober = self._prober
        top = min(CONTROL_TOKENS, prober.limits.longest_safe or CONTROL_TOKENS)
        for mode in prober.modes:
            for number in range(CONTROLS_EACH):
                tail = PHRASES[number // 2 % 2]
                cell = Cell(SURFACING, max(min(256, top), top - prober.draw(max(1, top // 2))))
                tenant = prober.tenants[number % len(prober.tenants)]
                await self._cell(cell, number, Way(mode, number % 2 == 0), tenant, tail)

    async def rounds(self, planned: Sequence[Round]) -> None:
        """Send the planned rounds, then test that the target is healthy."""
        seen, prober = self._seen, self._prober
        self._before = dict(await prober.counters())
        for each in planned:
            if each.idle:
                await prober.sleep(each.idle)
                seen.idle += each.idle
            drawn = Cell(each.length.stratum, each.length.tokens, drawn=True)
            await self._round(each, cells(prober.limits, prober.consent, drawn))
            seen.rounds_done += 1
        seen.unhealthy = await prober.healthy()

    async def replay(self, lengths: Sequence[int], planned: Sequence[Round]) -> None:
        """Lengths that leaked in an earlier run, after the rounds, each behind a victim of its own and in the ways of
        the last rounds."""
        limits = self._prober.limits
        longest, limit = limits.longest_safe, limits.first_rejected
        if not lengths or not planned or longest is None or limit is None:
            return
        allowed = [tokens for tokens in lengths if tokens < limit - 8 or not self._seen.withheld]
        order = [Cell("victim", longest)]
        order += [Cell(f"replayed {tokens}", tokens, tokens >= limit) for tokens in allowed]
        for number in range(REPLAYED_ROUNDS):
            model = planned[-1 - number % len(planned)]
            await self._round(replace(model, number=len(planned) + number), order)
        self._seen.unhealthy = await self._prober.healthy()

    async def _round(self, each: Round, order: Sequence[Cell]) -> None:
        for at, cell in enumerate(order):
            if cell.name not in self._seen.left_out:
                tenant = each.reader if cell.drawn else each.tenant(at)
                tail = each.tail if cell.drawn else each.tail_of(at)
                await self._cell(cell, each.number, each.way, tenant, tail)
        self._leave_out(order)

    def _leave_out(self, order: Sequence[Cell]) -> None:
        """Lengths above the limit that twice brought no answer but a failing server are not sent again:
        each may hold pages for minutes, and says nothing."""
        for cell in order:
            tried = [one for one in self._seen.trials if one.name == cell.name]
            lost = [one for one in tried if one.late or one.outcome in (Outcome.FAILED, Outcome.BROKEN)]
            if cell.above and len(tried) >= 2 and len(lost) == len(tried):
                self._seen.left_out[cell.name] = lost[-1].outcome.value

    async def _cell(self, cell: Cell, number: int, way: Way, tenant: str, tail: str) -> None:
        sightings = await self._ask(cell, number, way, tenant, tail)
        hits = [one for one in sightings if one.verified]
        if hits:
            await self._after_a_hit(cell, number, way, tenant, hits[0])
        if any(one.suspicious for one in sightings):
            for _ in range(REPEATS_OF_SUSPICION):
                again = await self._ask(cell, number, way, tenant, tail, repeated=True)
                if hits := [one for one in again if one.verified]:
                    await self._after_a_hit(cell, number, way, tenant, hits[0])

    async def _after_a_hit(self, cell: Cell, number: int, way: Way, tenant: str, hit: Sighting) -> None:
        """One verified hit decides; a few more requests, with consent, say how often it happens."""
        if self._prober.consent:
            for _ in range(MORE_AFTER_A_HIT):
                self._seen.repeats += 1
                again = await self._ask(cell, number, way, tenant, hit.tail, repeated=True)
                self._seen.repeat_hits += any(one.verified for one in again)
        raise Stop(f"Stopped at the first verified hit: {hit.kind}, at {hit.length:,} tokens.", harm=True)

    # -- one request ---------------------------------------------------------------------------

    async def _ask(
        self, cell: Cell, number: int, way: Way, tenant: str, tail: str, *, repeated: bool = False
    ) -> list[Sighting]:
        """What of other requests stands in the answer. ``repeated``: it is no trial of its round any more."""
        prober, seen = self._prober, self._seen
        marker = draw_marker(prober.draw, tenant=tenant, request=str(self._sent))
        self._sent += 1
        way = replace(way, mode=self._mode(way.mode, cell.tokens))
        tail = self._fitting(tail, way.mode, cell.tokens)
        prompt = await prober.framed(
            marker,
            cell.tokens,
            self._tail(tail, marker),
            tenant=tenant,
            lead=draw_leads(prober.draw, 1)[0],
            mode=way.mode,
        )
        self._plant(marker, prompt)
        room = prober.room(cell.tokens, ANSWER_TOKENS)
        reply = await prober.ask(tenant, prompt, max_tokens=room, stream=way.stream)
        noted = trial(cell.name, reply, tenant=tenant, asked=prompt.contents, room=room, repeat=number)
        seen.trials.append(noted)
        seen.evidence.extend(labelled_evidence(reply, noted))
        surfaced = prompt.contents is not None and prompt.contents.phrased(reply.text)
        asked = Asked(noted, way.mode.value, way.stream, tail, cell.drawn and not repeated, surfaced)
        seen.asked.append(asked)
        if reply.outcome is Outcome.ANSWERED and cell.name != SURFACING:
            frames = min(cell.tokens, WINDOW_FRAMES * (prompt.frame_tokens or 0))
            seen.own_tokens += (frames if tail == WINDOW else cell.tokens) + (reply.completion_tokens or 0)
        if reply.foreign:
            seen.unknown.append(_unknown(reply, cell, number))
        # Truncated and cancelled answers are searched too: a marker in half an answer is a leak.
        sightings = [
            self._sighting(match, asked, reply.text) for match in self._matcher.find(reply.text, own=marker)
        ]
        seen.sightings.extend(sightings)
        await self._look_after(noted, reply, sightings)
        return sightings

    async def _look_after(self, noted: Trial, reply: Reply, sightings: Sequence[Sighting]) -> None:
        if not any(one.verified for one in sightings) and (problem := await harmed(self._prober, reply)):
            self._seen.unhealthy = problem
            raise Stop(f"Stopped at {noted.tokens:,} tokens: {problem}", harm=True)

    def _mode(self, wanted: Mode, tokens: int) -> Mode:
        if wanted.takes_ids or tokens <= LONGEST_TEXT:
            return wanted
        return next((mode for mode in self._prober.modes if mode.takes_ids), wanted)

    def _fitting(self, tail: str, mode: Mode, tokens: int) -> str:
        """A nonce where a prompt is too short to hold a phrase before its last page; frames everywhere where the model
        does not find those of a window."""
        if tail == NONCE or tokens < self._phrase_fits:
            return NONCE
        if tail == WINDOW:
            found = [one.surfaced for one in self._seen.asked if (one.mode, one.tail) == (mode.value, WINDOW)]
            if len(found) >= ENOUGH_WINDOWS and sum(found) < len(found) / 2:
                return PHRASE
        return tail

    def _tail(self, tail: str, marker: Marker) -> Tail:
        prober = self._prober
        if tail == NONCE:
            return draw_nonce(prober.draw, without=marker.words).tail
        depth = prober.draw(FINE) / FINE if tail == WINDOW else None
        return phrase_tail(prober.draw, max(prober.limits.page, LEAST_BARE), prober.wording, depth)

    def _plant(self, marker: Marker, prompt: Prompt) -> None:
        """Live from before it is sent."""
        self._matcher.add(marker)
        self._seen.planted.append(marker)
        if prompt.frame_tokens:
            self._frames[marker] = prompt.frame_tokens
            self._phrase_fits = 5 * prompt.frame_tokens // 4 + max(self._prober.limits.page, LEAST_BARE)

    def _sighting(self, match: Match, asked: Asked, text: str) -> Sighting:
        marker: Marker = match.marker
        page, frame = self._prober.limits.page, self._frames.get(marker, 0)
        ordinals = tuple(
            dict.fromkeys(number * frame // page for number in (frame_numbers(text, marker) if frame else ()))
        )
        return Sighting(
            reader=asked.trial.tenant,
            planted_by=marker.tenant,
            words=match.matched,
            run=match.run,
            length=asked.trial.tokens,
            cell=asked.trial.name,
            round=asked.trial.repeat,
            ordinals=ordinals,
            decoy=marker.decoy,
            suspicious=match.suspicious,
            earlier_run=marker in self._earlier,
            no_ordinals="" if ordinals else NO_NUMBER if frame else NO_FRAME,
            route=asked.route,
            tail=asked.tail,
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


def _unknown(reply: Reply, cell: Cell, number: int) -> UnknownAnswer:
    """Only what its evidence says in clear."""
    kept = next((item.body for item in reply.evidence if item.kind == "response" and item.body), b"{}")
    said = orjson.loads(kept)
    return UnknownAnswer(
        cell.tokens, cell.name, number, int(said.get("text_length", 0)), str(said.get("text_hmac_sha256", ""))
    )
