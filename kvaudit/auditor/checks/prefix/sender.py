"""Sends the prefixes, fillers, texts and twins of the prefix check, and notes what came back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import product

from kvaudit.auditor.checks.evidence_source import labelled_evidence
from kvaudit.auditor.checks.prefix.contents import (
    CONTROLS,
    FRESH,
    HIT,
    QUESTIONS,
    ROOM,
    TIER,
    Recalled,
    Text,
    draw_text,
    lengths,
)
from kvaudit.auditor.checks.prefix.responses import GAP, Lots, Made, Twins
from kvaudit.auditor.checks.prefix.seen import Cached, PrefixSeen
from kvaudit.auditor.checks.prober_protocol import Outcome, Prober, Reply, Stop
from kvaudit.auditor.checks.trials import harmed, trial
from kvaudit.auditor.checks.ways import Way, Ways, every_way
from kvaudit.auditor.text.markers import Marker, draw_marker, draw_words
from kvaudit.auditor.text.prompts import Needle, Tail, draw_leads, draw_nonce
from kvaudit.auditor.text.spelling import Prompt

PREFIX_TOKENS = 1000
REPEATS = 3
LOOKS = (100, 250)
"""Samples per arm at the first and second look, alpha 5e-7 each."""

ANSWER_TOKENS = 8
CACHE_TOKENS = 32
LOTS = "Pick one word at random:"


class PrefixSender:
    def __init__(self, prober: Prober, seen: PrefixSeen) -> None:
        self._prober, self._seen = prober, seen
        self._a, self._b = prober.tenants[0], prober.tenants[1]
        # A system prompt that the target puts before every prompt must leave room for the longest question.
        self._tokens = PREFIX_TOKENS + prober.most_added
        self._ways = Ways(prober)
        self._way = self._usual = Way(prober.modes[0], True)

    async def counts(self) -> None:
        """By every route: A stores and repeats its own prefix; all others send the same; where A has a salt, B steals
        it."""
        for repeat, way in product(range(REPEATS), self._by_every_route()):
            self._way = way
            marker, lead = self._fresh()
            await self._send(self._a, marker, lead, "store", repeat)
            await self._note("own", repeat, await self._send(self._a, marker, lead, "own", repeat))
            for other in self._prober.tenants[1:]:
                reply = await self._send(other, marker, lead, "cross", repeat)
                await self._note("cross", repeat, reply, other)
        await self.salts()

    def _by_every_route(self) -> list[Way]:
        return list(every_way(self._prober.modes)[: len(self._prober.modes)])

    async def contents(self) -> None:
        """Texts of several lengths are stored and asked again, each in a way of its own, the shortest with a salt too,
        each time for something else that they hold."""
        allowed = self._prober.rounds_ceiling
        for tokens in lengths(self._prober.limits):
            if allowed is not None and (REPEATS * (1 + QUESTIONS) + 1) * tokens > allowed // 4:
                continue
            for repeat in range(REPEATS):
                self._way = self._ways.next("text", tokens)
                text = self._text()
                await self._recall(text, tokens, FRESH, repeat)
                for question in range(QUESTIONS):
                    await self._recall(text, tokens, HIT, question)
        for question in range(CONTROLS):
            self._way = self._ways.next("control", self._tokens)
            await self._recall(self._text(), self._tokens, FRESH, question)
        self._way = self._usual
        text, salt = self._text(), f"kvaudit-{self._prober.draw(10**9):09d}"
        try:
            await self._recall(text, self._tokens, FRESH, 1, salt)
        except ValueError:
            return  # this way of asking carries no salt
        for question in range(QUESTIONS):
            await self._recall(text, self._tokens, HIT, question, salt)

    def _text(self) -> Text:
        return draw_text(self._prober.draw, draw_leads(self._prober.draw, 1)[0])

    async def _recall(
        self, text: Text, tokens: int, arm: str, question: int, salt: str | None = None
    ) -> None:
        prober = self._prober
        tail = text.asking(question, prober.draw, prober.limits.page)
        prompt = await self._framed(text.marker, tokens, tail, self._a, text.lead, text.needles)
        room = prober.room(tokens, ROOM)
        reply = await self._ask(self._a, prompt, arm, question, max_tokens=room, salt=salt)
        if reply.outcome is Outcome.ANSWERED and prompt.contents is not None:
            given, cached = prompt.contents.answered(reply.text), reply.cached_tokens
            if cached is not None and cached <= self._seen.tolerance:
                arm = FRESH  # evicted meanwhile, or not kept
            self._seen.recalled.append(Recalled(arm, tokens, given, cached, reply.mode))

    async def twins(self) -> None:
        """In every way: one prompt by two keys at temperature 0, some seconds apart, and fresh ones between."""
        pairs = [Twins(str(way)) for way in every_way(self._prober.modes)]
        self._seen.twins.extend(pairs)
        for repeat in range(REPEATS):
            firsts = []
            for way in every_way(self._prober.modes):
                self._way = way
                marker, lead = self._fresh()
                tail = draw_nonce(self._prober.draw, without=marker.words).tail
                prompts = [
                    await self._framed(marker, self._tokens, tail, one, lead) for one in (self._a, self._b)
                ]
                firsts.append((way, prompts[1], await self._made(self._a, prompts[0], repeat)))
            await self._prober.sleep(GAP)
            for twins, (way, prompt, first) in zip(pairs, firsts, strict=True):
                self._way = way
                for tenant in (self._a, self._b):
                    other, start = self._fresh()
                    tail = draw_nonce(self._prober.draw, without=other.words).tail
                    fresh = await self._framed(other, self._tokens, tail, tenant, start)
                    if made := await self._made(tenant, fresh, repeat):
                        twins.fresh.append(made)
                second = await self._made(self._b, prompt, repeat)
                if first is not None and second is not None:
                    twins.pairs.append((first, second))

    async def _made(self, tenant: str, prompt: Prompt, repeat: int) -> Made | None:
        sent = self._prober.now()
        reply = await self._ask(tenant, prompt, "twin", repeat)
        if reply.outcome is not Outcome.ANSWERED:
            return None
        return Made(sent, reply.answer_id, reply.created, frozenset(reply.cache_headers))

    async def salts(self) -> None:
        """B sends the salt that A sends. On a bare engine that hits; an entry that sets salts itself must
        overwrite it. Where A has none of its own, it sends a fresh one for this arm."""
        for repeat, way in product(range(REPEATS), self._by_every_route()):
            self._way = way
            with suppress(ValueError):  # this way of asking carries no salt
                await self._steal(repeat)

    async def _steal(self, repeat: int) -> None:
        marker, lead = self._fresh()
        own = self._prober.salts.get(self._a)
        salt = own or f"kvaudit-{draw_marker(self._prober.draw).words[0]}-{repeat}"
        await self._send(self._a, marker, lead, "store", repeat, salt=salt)
        reply = await self._send(self._a, marker, lead, "salted own", repeat, salt=salt)
        await self._note("salted own", repeat, reply)
        reply = await self._send(self._b, marker, lead, "stolen salt", repeat, salt=salt)
        await self._note("stolen salt", repeat, reply)

    async def tiers(self) -> None:
        """A stores, fillers of A push the pool past 100 %, then B and A ask for the prefix again; all the usual way,
        since tiers lie beneath the routes."""
        self._way = self._usual
        limits = self._prober.limits
        filler = min(limits.longest_safe or 0, 4 * self._tokens)
        pool = limits.largest_pool or limits.pool  # whichever node caches, its pool must overflow
        if pool is None or filler < self._tokens // 2:
            return
        budget = self._prober.rounds_ceiling
        if budget is not None and budget < REPEATS * (pool + filler) + 2 * LOOKS[0] * self._tokens:
            return
        for repeat in range(REPEATS):
            marker, lead = self._fresh()
            text = self._text()
            await self._recall(text, self._tokens, FRESH, repeat)
            await self._send(self._a, marker, lead, "store", repeat)
            filled = 0
            while filled <= pool:
                other, start = self._fresh()
                await self._send(self._a, other, start, "filler", repeat, tokens=filler)
                filled += filler
            await self._note(
                "tier cross", repeat, await self._send(self._b, marker, lead, "tier cross", repeat)
            )
            await self._note("tier own", repeat, await self._send(self._a, marker, lead, "tier own", repeat))
            for question in range(QUESTIONS):
                await self._recall(text, self._tokens, TIER, question)
        self._seen.tier_asked = True

    async def responses(self) -> None:
        """By every route: prompts whose answer is a draw of lots. Two keys that get the same bytes share a response."""
        for mode in self._prober.modes:
            self._way = Way(mode, False)
            self._seen.lots.append(lots := Lots(mode))
            for repeat in range(REPEATS):
                await self._draw_lots(lots, repeat)

    async def _draw_lots(self, lots: Lots, repeat: int) -> None:
        options = draw_words(self._prober.draw, 24)
        marker, lead = self._fresh()
        # The words before each option are the same and long, so nothing foretells which comes next.
        tail = Tail("".join(f" {LOTS} {option}." for option in options) + f" {LOTS}")
        answers = []
        # The third request asks for one token more: no cached response serves it, so an engine that
        # draws the same lots again is deterministic, and equal answers across keys mean nothing.
        for tenant, more in ((self._a, 0), (self._b, 0), (self._a, 1)):
            prompt = await self._framed(marker, self._tokens, tail, tenant, lead)
            most = CACHE_TOKENS + more
            reply = await self._ask(tenant, prompt, "lots", repeat, max_tokens=most, temperature=1.0)
            answers.append(reply.text if reply.outcome is Outcome.ANSWERED else "")
        first, other, again = answers
        if first and other and again:
            lots.compared += 1
            lots.equal += first == other
            lots.again += again.startswith(first)

    async def times(self, samples: int) -> None:
        """First-token times in shuffled order: B on A's prefix, B on fresh text, A on its own prefix; all the usual
        way, since times of several are not to be compared."""
        self._way = self._usual
        order = [arm for arm in ("cross", "miss", "own") for _ in range(samples)]
        for index in range(len(order) - 1, 0, -1):
            other = self._prober.draw(index + 1)
            order[index], order[other] = order[other], order[index]
        seen = self._seen
        into = {"cross": seen.hits, "miss": seen.misses, "own": seen.own_hits}
        for number, arm in enumerate(order):
            marker, lead = self._fresh()
            reader = self._a if arm == "own" else self._b
            if arm != "miss":
                await self._send(self._a, marker, lead, "store", number)
            reply = await self._send(reader, marker, lead, f"timed {arm}", number)
            if reply.outcome is Outcome.ANSWERED and reply.first_token:
                into[arm].append(reply.first_token)

    def _fresh(self) -> tuple[Marker, str]:
        return draw_marker(self._prober.draw), draw_leads(self._prober.draw, 1)[0]

    async def _send(
        self,
        tenant: str,
        marker: Marker,
        lead: str,
        arm: str,
        repeat: int,
        *,
        tokens: int = 0,
        salt: str | None = None,
    ) -> Reply:
        """The prefix of this marker with a question of its own: what differs comes at the very end."""
        nonce = draw_nonce(self._prober.draw, without=marker.words)
        prompt = await self._framed(marker, tokens or self._tokens, nonce.tail, tenant, lead)
        return await self._ask(tenant, prompt, arm, repeat, salt=salt)

    async def _framed(
        self, marker: Marker, tokens: int, tail: Tail, tenant: str, lead: str, needles: Sequence[Needle] = ()
    ) -> Prompt:
        """To be sent in the present way."""
        return await self._prober.framed(
            marker, tokens, tail, needles, tenant=tenant, lead=lead, mode=self._way.mode
        )

    async def _ask(
        self,
        tenant: str,
        prompt: Prompt,
        arm: str,
        repeat: int,
        *,
        max_tokens: int = ANSWER_TOKENS,
        temperature: float = 0.0,
        salt: str | None = None,
    ) -> Reply:
        reply = await self._prober.ask(
            tenant,
            prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            salt=salt,
            stream=self._way.stream,
        )
        found = trial(arm, reply, tenant=tenant, asked=None, room=max_tokens, repeat=repeat)
        self._seen.trials.append(found)
        if not arm.startswith(("timed", "filler", "store")):
            self._seen.evidence.extend(labelled_evidence(reply, found))
        if problem := await harmed(self._prober, reply):
            self._seen.unhealthy = problem
            raise Stop(f"Stopped: {problem}", harm=True)
        return reply

    async def _note(self, arm: str, repeat: int, reply: Reply, tenant: str = "") -> None:
        if reply.outcome is Outcome.ANSWERED:
            found = Cached(arm, repeat, reply.cached_tokens, reply.tokens_sent, tenant, reply.mode)
            self._seen.counts.append(found)
