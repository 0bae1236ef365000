"""Asks a model for facts of its own long prompt and notes which it finds. What the check is for:
`kvaudit.auditor.checks.coherence`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from kvaudit.auditor.checks.coherence import CHECK
from kvaudit.auditor.checks.coherence.verdict import (
    LEAST_BASELINE,
    NEEDLES,
    CoherenceSeen,
    Reading,
    judge_coherence,
)
from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.evidence_source import labelled_evidence
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome, Plan, Prober, Reply, Stop
from kvaudit.auditor.checks.trials import harmed, trial, unaskable, withheld
from kvaudit.auditor.text.markers import Marker, draw_marker
from kvaudit.auditor.text.prompts import Needle, Nonce, Tail, draw_needles, draw_nonce, together
from kvaudit.auditor.verdict import Result

GLANCED = (0, 5)
"""Facts asked first, at the beginning and in the middle, besides the nonce at the end: three prompts per
length. The other eight are asked only when something is missing."""

BASELINE_TOKENS = 1024
ANSWER_TOKENS = 24
LIST_TOKENS = 128


class AskMode(Enum):
    """How a text is asked: all in one prompt, each by itself, or a few."""

    TOGETHER = "together"
    EACH = "each"
    GLANCE = "glance"


def lengths(limits: Limits, consent: bool) -> tuple[tuple[str, int], ...]:
    """The lengths that are read: half N, 0.9 N, the longest safe one, and N+1 where it may be sent."""
    n, longest = limits.first_rejected, limits.longest_safe
    if n is None or longest is None:
        return ()
    chosen = [("half", n // 2), ("0.9 N", int(0.9 * n)), ("longest", longest)]
    if consent or not limits.dangerous:
        chosen.append(("N+1", n + 1))
    return tuple(chosen)


class CoherenceProbe:
    """Asks one tenant's own facts back at long lengths."""

    id = CHECK.id

    def plan(self, prober: Prober) -> Plan:
        """Requests and prompt tokens as if this model could not go through a list: a few questions per length."""
        asked = lengths(prober.limits, prober.consent)
        limit = prober.limits.first_rejected or 0
        per_length = 1 + len(GLANCED)
        tokens = sum(per_length * length for _, length in asked if length < limit)
        baseline = (2 + NEEDLES) * BASELINE_TOKENS
        note = (
            "a model that goes through a list needs one prompt per length"
            if asked
            else "the limit is unknown"
        )
        return Plan(
            2 + NEEDLES + per_length * len(asked), tokens + baseline, 2.0 * len(asked) * per_length, note=note
        )

    async def observe(self, audit: Audit) -> CoherenceSeen:
        """Ask about each length, the short baseline first; stops where harm is seen."""
        prober = audit.prober
        if prober is None:
            return CoherenceSeen(None, unaskable=True)
        seen = CoherenceSeen(prober.limits, withheld=withheld(prober.limits, prober.consent))
        sender = CoherenceSender(prober, seen)
        try:
            asked = lengths(prober.limits, prober.consent)
            seen.planned = len(asked)
            shortest = min((length for _, length in asked), default=BASELINE_TOKENS)
            seen.baseline = await sender.baseline(min(BASELINE_TOKENS, shortest))
            for name, tokens in asked:
                await sender.length(name, tokens)
            seen.unhealthy = seen.unhealthy or await prober.healthy()
        except Stop as stop:
            seen.stopped = stop.reason
        return seen

    def judge(self, seen: CoherenceSeen, audit: Audit) -> Result:
        if seen.unaskable:
            return unaskable(self.id, audit, "one tenant's key")
        return judge_coherence(seen)


class CoherenceSender:
    """Sends texts that hold facts of their own and asks for these."""

    def __init__(self, prober: Prober, seen: CoherenceSeen) -> None:
        self._prober, self._seen = prober, seen

    async def length(self, name: str, tokens: int) -> None:
        """Read one length; a text that was not read at all is confirmed by a fresh one."""
        first = await self.at(name, tokens)
        self._seen.readings.append(first)
        if first.unread:
            again = await self.at(name, tokens, fresh=1)
            self._seen.readings.append(again)
            if again.unread:
                raise Stop(f"Stopped at {tokens:,} tokens: two texts in a row were not read.", harm=True)

    async def baseline(self, tokens: int) -> Reading:
        """Everything at a short length: in one prompt if this model can go through a list, else one by one."""
        listed = await self.read("baseline", tokens, AskMode.TOGETHER)
        if (listed.found + bool(listed.nonce)) / (NEEDLES + 1) >= LEAST_BASELINE:
            self._seen.together = True
            return listed
        return await self.read("baseline", tokens, AskMode.EACH)

    async def at(self, name: str, tokens: int, fresh: int = 0) -> Reading:
        """One text at one length; what a list leaves open is asked one by one."""
        if self._seen.together:
            listed = await self.read(name, tokens, AskMode.TOGETHER, fresh)
            if listed.complete or listed.refused:
                return listed
        return await self.read(name, tokens, AskMode.GLANCE, fresh)

    async def read(self, name: str, tokens: int, how: AskMode, fresh: int = 0) -> Reading:
        """Every question has a text of its own: pages of the text before, which held the same facts at the
        same places, would answer as well as the own ones."""
        reading = Reading(name, tokens, fresh)
        if how is AskMode.TOGETHER:
            marker, needles, nonce = self._text()
            reply = await self._ask(reading, marker, needles, together(nonce, needles), LIST_TOKENS)
            if reply is not None:
                reading.nonce = nonce.answered(reply.text)
                for needle in needles:
                    reading.note(needle, needle.answered(reply.text))
            return reading
        first = range(NEEDLES) if how is AskMode.EACH else GLANCED
        rest = [index for index in range(NEEDLES) if index not in first]
        marker, needles, nonce = self._text()
        reply = await self._ask(reading, marker, needles, nonce.tail)
        if reply is not None:
            reading.nonce = nonce.answered(reply.text)
        waiting = list(first)
        if reading.nonce is False:
            waiting, rest = [*waiting, *rest], []
        while waiting and not reading.refused:
            marker, needles, _ = self._text()
            needle = needles[waiting.pop(0)]
            reply = await self._ask(reading, marker, needles, needle.tail)
            if reply is None:
                continue
            right = needle.answered(reply.text)
            reading.note(needle, right)
            if not right:  # the other facts are asked only when something is missing
                waiting, rest = [*waiting, *rest], []
        return reading

    def _text(self) -> tuple[Marker, tuple[Needle, ...], Nonce]:
        draw = self._prober.draw
        marker = draw_marker(draw)
        needles = draw_needles(draw, without=marker.words)
        return (
            marker,
            needles,
            draw_nonce(draw, without=(*marker.words, *(needle.word for needle in needles))),
        )

    async def _ask(
        self,
        reading: Reading,
        marker: Marker,
        needles: Sequence[Needle],
        tail: Tail,
        wanted: int = ANSWER_TOKENS,
    ) -> Reply | None:
        """One question of a text; None where it brought no answer to judge. A length above the limit whose
        first question is not answered is not an accepted length, and no more is sent at it."""
        prober, seen = self._prober, self._seen
        tenant = prober.tenants[0]
        prompt = await prober.framed(marker, reading.tokens, tail, needles, tenant=tenant)
        room = prober.room(reading.tokens, wanted)
        reply = await prober.ask(tenant, prompt, max_tokens=room)
        found = trial(reading.name, reply, tenant=tenant, asked=None, room=room, repeat=reading.fresh)
        seen.trials.append(found)
        seen.evidence.extend(labelled_evidence(reply, found))
        if reply.outcome is Outcome.ANSWERED:
            return reply
        if problem := await harmed(prober, reply):
            seen.unhealthy = problem
            raise Stop(f"Stopped at {reading.tokens:,} tokens: {problem}", harm=True)
        limit = seen.limits.first_rejected if seen.limits else None
        above = limit is not None and reading.tokens >= limit
        if reply.outcome is Outcome.REFUSED or (above and reading.nonce is None and not reading.asked):
            reading.refused = True
        return None


PROBE = CoherenceProbe()
