"""Asks a model for facts of its own long prompt and notes which it finds. What the check is for:
`kvaudit.auditor.checks.coherence`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from kvaudit.auditor.checks.asker import Asker, Cell, Text
from kvaudit.auditor.checks.coherence import CHECK
from kvaudit.auditor.checks.coherence.verdict import (
    LEAST_BASELINE,
    NEEDLES,
    CoherenceSeen,
    Reading,
    judge_coherence,
)
from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome, Plan, Prober, Stop
from kvaudit.auditor.checks.trials import unaskable, withheld
from kvaudit.auditor.text.markers import Draw, draw_marker
from kvaudit.auditor.text.prompts import Contents, draw_needles, draw_nonce, together
from kvaudit.auditor.verdict import Result

GLANCED = (0, 5)
"""Facts asked first, at the beginning and in the middle, besides the nonce at the end: three prompts per
length. The other eight are asked only when something is missing."""

BASELINE = "baseline"
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
            seen.unhealthy = await prober.healthy()
        except Stop as stop:
            seen.stopped = stop.reason
        seen.unhealthy = seen.unhealthy or sender.asker.unhealthy
        return seen

    def judge(self, seen: CoherenceSeen, audit: Audit) -> Result:
        if seen.unaskable:
            return unaskable(self.id, audit, "one tenant's key")
        return judge_coherence(seen)


class CoherenceSender:
    """Sends texts that hold facts of their own and asks for these."""

    def __init__(self, prober: Prober, seen: CoherenceSeen) -> None:
        self._prober, self._seen = prober, seen
        self.asker = Asker(prober, seen.trials, seen.evidence, seen.misses)

    async def length(self, name: str, tokens: int) -> None:
        """Read one length; a text that was not read at all is confirmed by a fresh one."""
        first = await self.at(name, tokens)
        self._seen.readings.append(first)
        if first.unread:
            again = await self.at(name, tokens, fresh=1)
            self._seen.readings.append(again)
            if again.unread and self._seen.above(tokens):
                raise Stop(f"Stopped at {tokens:,} tokens: two texts in a row were not read.", harm=True)

    async def baseline(self, tokens: int) -> Reading:
        """Everything at a short length: in one prompt if this model can go through a list, else one by one."""
        listed = await self.read(BASELINE, tokens, AskMode.TOGETHER)
        if (listed.found + bool(listed.nonce)) / (NEEDLES + 1) >= LEAST_BASELINE:
            self._seen.together = True
            return listed
        return await self.read(BASELINE, tokens, AskMode.EACH)

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
            answer = await self._ask(reading, _all_at_once, LIST_TOKENS)
            if answer is not None:
                contents = answer.contents
                reading.nonce = contents.answered(answer.text)
                for needle in contents.needles:
                    reading.note(needle, needle.answered(answer.text))
            return reading
        first = range(NEEDLES) if how is AskMode.EACH else GLANCED
        rest = [index for index in range(NEEDLES) if index not in first]
        answer = await self._ask(reading, _nonce, follow_up=True)
        if answer is not None:
            reading.nonce = answer.contents.answered(answer.text)
        waiting = list(first)
        if reading.nonce is False:
            waiting, rest = [*waiting, *rest], []
        while waiting and not reading.refused:
            answer = await self._ask(reading, partial(_fact, waiting.pop(0)))
            if answer is None:
                continue
            (needle,) = answer.contents.tail.needles
            right = needle.answered(answer.text)
            reading.note(needle, right)
            if not right:  # the other facts are asked only when something is missing
                waiting, rest = [*waiting, *rest], []
        return reading

    async def _ask(
        self,
        reading: Reading,
        text: Callable[[Draw], Text],
        wanted: int = ANSWER_TOKENS,
        *,
        follow_up: bool = False,
    ) -> Said | None:
        """One question of a text; None where it brought no answer to judge. A length above the limit whose
        first question is not answered is not an accepted length, and no more is sent at it."""
        limit = self._prober.limits.first_rejected
        above = limit is not None and reading.tokens >= limit
        cell = Cell(reading.name, reading.tokens, self._prober.tenants[0], text, wanted)
        if follow_up and reading.name != BASELINE:
            answer = await self.asker.ask(cell, reading.fresh, compare=not above)
        else:
            answer = await self.asker.send(cell, reading.fresh)
        contents, outcome = answer.prompt.contents, answer.trial.outcome
        if outcome is Outcome.ANSWERED and contents is not None:
            return Said(answer.reply.text, contents)
        if outcome in (Outcome.REFUSED, Outcome.HIDDEN) or (
            above and reading.nonce is None and not reading.asked
        ):
            reading.refused = True
        return None


@dataclass(frozen=True, slots=True)
class Said:
    """An answer, and what its prompt held."""

    text: str
    contents: Contents


def _nonce(draw: Draw) -> Text:
    """Ten facts, and a word asked at their end."""
    marker = draw_marker(draw)
    needles = draw_needles(draw, without=marker.words)
    nonce = draw_nonce(draw, without=(*marker.words, *(needle.word for needle in needles)))
    return Text(marker, nonce.tail, needles)


def _fact(index: int, draw: Draw) -> Text:
    text = _nonce(draw)
    return replace(text, tail=text.needles[index].tail)


def _all_at_once(draw: Draw) -> Text:
    text = _nonce(draw)
    assert text.tail.nonce is not None
    return replace(text, tail=together(text.tail.nonce, text.needles))


PROBE = CoherenceProbe()
