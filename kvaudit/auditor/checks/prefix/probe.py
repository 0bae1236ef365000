"""Stores prefixes as one tenant, asks for them as both, and counts and times the hits. What the check is for:
`kvaudit.auditor.checks.prefix`."""

from __future__ import annotations

from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.evidence_source import labelled_evidence
from kvaudit.auditor.checks.prefix import CHECK
from kvaudit.auditor.checks.prefix.verdict import ALPHA, Cached, PrefixSeen, judge_prefix
from kvaudit.auditor.checks.prober_protocol import Outcome, Plan, Prober, Reply, Stop
from kvaudit.auditor.checks.trials import harmed, trial, unaskable
from kvaudit.auditor.text.markers import Marker, draw_marker, draw_words
from kvaudit.auditor.text.prompts import Tail, draw_leads, draw_nonce
from kvaudit.auditor.text.spelling import Prompt
from kvaudit.auditor.verdict import Result

PREFIX_TOKENS = 1000
REPEATS = 3
LOOKS = (100, 250)
"""Samples per arm at the first and second look, alpha 5e-7 each."""

ANSWER_TOKENS = 8
CACHE_TOKENS = 32
PARTS = 4
"""Counts, tiers, responses and times."""

LOTS = "Pick one word at random:"


class PrefixProbe:
    """Sends one tenant's prefix as another tenant and compares cached tokens, times and answers."""

    id = CHECK.id

    def plan(self, prober: Prober) -> Plan:
        timed = 5 * LOOKS[0]  # two of three arms store first
        fillers = (prober.limits.largest_pool or prober.limits.pool or 0) * REPEATS
        return Plan(timed + 40, timed * PREFIX_TOKENS + fillers + 40 * PREFIX_TOKENS, 0.2 * timed + 60)

    async def observe(self, audit: Audit) -> PrefixSeen:
        prober = audit.prober
        if prober is None:
            return PrefixSeen(unaskable="two tenants' keys")
        seen = PrefixSeen(prober.tenants, prober.limits.page)
        seen.entry_sets_salts = prober.entry_sets_salts
        seen.salted = bool(prober.salts)
        if len(prober.tenants) < 2:
            seen.unaskable = "a second tenant's key"
            return seen
        sender = PrefixSender(prober, seen)
        try:
            await sender.counts()
            seen.parts += 1
            if not _crossed(seen):  # what counts have shown needs no overflowing pool
                await sender.tiers()
            seen.parts += 1
            await sender.responses()
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


def _crossed(seen: PrefixSeen) -> bool:
    """Whether counts already decide: no timing is needed then."""
    cross = [one for one in seen.counts if one.arm in ("cross", "tier cross")]
    return sum((one.cached or 0) > seen.page for one in cross) >= 2


def _undecided(seen: PrefixSeen) -> bool:
    from kvaudit.auditor.stats.timing import faster

    if not seen.hits or not seen.misses or not seen.own_hits:
        return False
    return faster(seen.own_hits, seen.misses).p >= ALPHA or faster(seen.hits, seen.misses).p < 1e-2


class PrefixSender:
    def __init__(self, prober: Prober, seen: PrefixSeen) -> None:
        self._prober, self._seen = prober, seen
        self._a, self._b = prober.tenants[0], prober.tenants[1]

    async def counts(self) -> None:
        """A stores and repeats its own prefix; B sends the same; where A has a salt, B steals it."""
        for repeat in range(REPEATS):
            marker, lead = self._fresh()
            await self._send(self._a, marker, lead, "store", repeat)
            await self._note("own", repeat, await self._send(self._a, marker, lead, "own", repeat))
            await self._note("cross", repeat, await self._send(self._b, marker, lead, "cross", repeat))
        await self.salts()

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
        filler = min(limits.longest_safe or 0, 4 * PREFIX_TOKENS)
        pool = limits.largest_pool or limits.pool  # whichever node caches, its pool must overflow
        if pool is None or filler < PREFIX_TOKENS // 2:
            return
        budget = self._prober.rounds_ceiling
        if budget is not None and budget < REPEATS * (pool + filler) + 2 * LOOKS[0] * PREFIX_TOKENS:
            return
        for repeat in range(REPEATS):
            marker, lead = self._fresh()
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
                prompt = await self._prober.framed(marker, PREFIX_TOKENS, tail, tenant=tenant, lead=lead)
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
        tokens: int = PREFIX_TOKENS,
        salt: str | None = None,
    ) -> Reply:
        """The prefix of this marker with a question of its own: what differs comes at the very end."""
        nonce = draw_nonce(self._prober.draw, without=marker.words)
        prompt = await self._prober.framed(marker, tokens, nonce.tail, tenant=tenant, lead=lead)
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

    async def _note(self, arm: str, repeat: int, reply: Reply) -> None:
        if reply.outcome is Outcome.ANSWERED:
            self._seen.counts.append(Cached(arm, repeat, reply.cached_tokens, reply.tokens_sent))


PROBE = PrefixProbe()
