"""Sends the prefixes, fillers, texts and twins of the prefix check, and notes what came back."""

from __future__ import annotations

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
from kvaudit.auditor.checks.prefix.responses import GAP, Made, Twins
from kvaudit.auditor.checks.prefix.verdict import Cached, PrefixSeen
from kvaudit.auditor.checks.prober_protocol import Outcome, Prober, Reply, Stop
from kvaudit.auditor.checks.trials import harmed, trial
from kvaudit.auditor.text.markers import Marker, draw_marker, draw_words
from kvaudit.auditor.text.prompts import Tail, draw_leads, draw_nonce
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
        self._tokens = PREFIX_TOKENS + max(prober.template.values(), default=0)

    async def counts(self) -> None:
        """A stores and repeats its own prefix; all others send the same; where A has a salt, B steals it."""
        for repeat in range(REPEATS):
            marker, lead = self._fresh()
            await self._send(self._a, marker, lead, "store", repeat)
            await self._note("own", repeat, await self._send(self._a, marker, lead, "own", repeat))
            for other in self._prober.tenants[1:]:
                reply = await self._send(other, marker, lead, "cross", repeat)
                await self._note("cross", repeat, reply, other)
        await self.salts()

    async def contents(self) -> None:
        """Texts of several lengths are stored and asked again, the shortest with a salt too, each time for something
        else that they hold."""
        allowed = self._prober.rounds_ceiling
        for tokens in lengths(self._prober.limits):
            if allowed is not None and (REPEATS * (1 + QUESTIONS) + 1) * tokens > allowed // 4:
                continue
            for repeat in range(REPEATS):
                text = self._text()
                await self._recall(text, tokens, FRESH, repeat)
                for question in range(QUESTIONS):
                    await self._recall(text, tokens, HIT, question)
        for question in range(CONTROLS):
            await self._recall(self._text(), self._tokens, FRESH, question)
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
        prompt = await prober.framed(text.marker, tokens, tail, text.needles, tenant=self._a, lead=text.lead)
        room = prober.room(tokens, ROOM)
        reply = await self._ask(self._a, prompt, arm, question, max_tokens=room, salt=salt)
        if reply.outcome is Outcome.ANSWERED and prompt.contents is not None:
            given, cached = prompt.contents.answered(reply.text), reply.cached_tokens
            if cached is not None and cached <= self._seen.tolerance:
                arm = FRESH  # evicted meanwhile, or not kept
            self._seen.recalled.append(Recalled(arm, tokens, given, cached))

    async def twins(self, *, stream: bool) -> None:
        """One prompt by two keys at temperature 0, some seconds apart, and fresh ones before and between."""
        twins = Twins("streamed" if stream else "whole")
        self._seen.twins.append(twins)
        for repeat in range(REPEATS):
            marker, lead = self._fresh()
            nonce = draw_nonce(self._prober.draw, without=marker.words)
            prompts = [
                await self._prober.framed(marker, self._tokens, nonce.tail, tenant=tenant, lead=lead)
                for tenant in (self._a, self._b)
            ]
            first = await self._made(self._a, prompts[0], repeat, stream)
            await self._prober.sleep(GAP)
            for tenant in (self._a, self._b):
                other, start = self._fresh()
                fresh = await self._prober.framed(other, self._tokens, nonce.tail, tenant=tenant, lead=start)
                if made := await self._made(tenant, fresh, repeat, stream):
                    twins.fresh.append(made)
            second = await self._made(self._b, prompts[1], repeat, stream)
            if first is not None and second is not None:
                twins.pairs.append((first, second))

    async def _made(self, tenant: str, prompt: Prompt, repeat: int, stream: bool) -> Made | None:
        sent = self._prober.now()
        reply = await self._ask(tenant, prompt, "twin", repeat, stream=stream)
        if reply.outcome is not Outcome.ANSWERED:
            return None
        return Made(sent, reply.answer_id, reply.created, frozenset(reply.cache_headers))

    async def salts(self) -> None:
        """B sends the salt that A sends. On a bare engine that hits; an entry that sets salts itself must
        overwrite it. Where A has none of its own, it sends a fresh one for this arm."""
        own = self._prober.salts.get(self._a)
        for repeat in range(REPEATS):
            marker, lead = self._fresh()
            salt = own or f"kvaudit-{draw_marker(self._prober.draw).words[0]}-{repeat}"
            try:
                await self._send(self._a, marker, lead, "store", repeat, salt=salt)
                await self._note(
                    "salted own",
                    repeat,
                    await self._send(self._a, marker, lead, "salted own", repeat, salt=salt),
                )
                reply = await self._send(self._b, marker, lead, "stolen salt", repeat, salt=salt)
            except ValueError:
                return  # this way of asking carries no salt
            await self._note("stolen salt", repeat, reply)

    async def tiers(self) -> None:
        """A stores, fillers of A push the pool past 100 %, then B and A ask for the prefix again."""
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
        """A prompt whose answer is a draw of lots: two keys that get the same bytes share a response."""
        seen = self._seen
        for repeat in range(REPEATS):
            options = draw_words(self._prober.draw, 24)
            marker, lead = self._fresh()
            # The words before each option are the same and long, so nothing foretells which comes next.
            tail = Tail("".join(f" {LOTS} {option}." for option in options) + f" {LOTS}")
            answers = []
            # The third request asks for one token more: no cached response serves it, so an engine that
            # draws the same lots again is deterministic, and equal answers across keys mean nothing.
            for tenant, more in ((self._a, 0), (self._b, 0), (self._a, 1)):
                prompt = await self._prober.framed(marker, self._tokens, tail, tenant=tenant, lead=lead)
                reply = await self._ask(
                    tenant,
                    prompt,
                    "lots",
                    repeat,
                    max_tokens=CACHE_TOKENS + more,
                    temperature=1.0,
                    stream=False,
                )
                answers.append(reply.text if reply.outcome is Outcome.ANSWERED else "")
            first, other, again = answers
            if first and other and again:
                seen.compared_answers += 1
                seen.equal_answers += first == other
                seen.drawn_again += again.startswith(first)

    async def times(self, samples: int) -> None:
        """First-token times in shuffled order: B on A's prefix, B on fresh text, A on its own prefix."""
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
        prompt = await self._prober.framed(
            marker, tokens or self._tokens, nonce.tail, tenant=tenant, lead=lead
        )
        return await self._ask(tenant, prompt, arm, repeat, salt=salt)

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
        stream: bool = True,
    ) -> Reply:
        reply = await self._prober.ask(
            tenant, prompt, max_tokens=max_tokens, temperature=temperature, salt=salt, stream=stream
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
            self._seen.counts.append(Cached(arm, repeat, reply.cached_tokens, reply.tokens_sent, tenant))
