"""Asks a model for facts of its own long prompt and notes which it finds. What the check is for:
`kvaudit.auditor.checks.coherence`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    share,
)
from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome, Plan, Prober, Stop
from kvaudit.auditor.checks.trials import unaskable, withheld
from kvaudit.auditor.checks.ways import Way, Ways
from kvaudit.auditor.engines.completion import Mode
from kvaudit.auditor.text.markers import Draw, draw_marker
from kvaudit.auditor.text.prompts import Contents, draw_needles, draw_nonce, together
from kvaudit.auditor.verdict import Result

GLANCED = (0, 5)
"""Facts asked first, at the beginning and in the middle, besides the nonce at the end: three prompts per
length. The other eight are asked only when something is missing."""

BASELINE = "baseline"
LONGEST, ABOVE = "longest", "N+1"
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
    chosen = [("half", n // 2), ("0.9 N", int(0.9 * n)), (LONGEST, longest)]
    if consent or not limits.dangerous:
        chosen.append((ABOVE, n + 1))
    return tuple(chosen)


def ways_of(asked: Sequence[tuple[str, int]], ways: Ways) -> list[tuple[str, int, Way]]:
    """Each length with the way that it is read in: the longest by the most exact route, the others by drawn ones, and
    what should be refused, which costs nothing then, by every route."""
    found = []
    drawn = ways.prober.draw(len(ways.modes))
    for name, tokens in reversed(asked):
        for _ in ways.modes if name == ABOVE else (ABOVE,):
            first = drawn if name not in (ABOVE, LONGEST) else 0
            way = ways.next(ABOVE if name == ABOVE else BASELINE, tokens, first)
            if (name, tokens, way) not in found:
                found.append((name, tokens, way))
    return found[::-1]


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
            shortest = min((length for _, length in asked), default=BASELINE_TOKENS)
            seen.planned = len(asked)
            for mode in prober.modes:
                await sender.baseline(min(BASELINE_TOKENS, shortest), mode)
            planned = ways_of(asked, sender.asker.ways)
            seen.planned = len(planned)
            for name, tokens, way in planned:
                if name == ABOVE and sender.fails(name):
                    continue  # every such prompt costs the server one more
                await sender.length(name, tokens, way)
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

    async def length(self, name: str, tokens: int, way: Way) -> None:
        """Read one length; a text that was not read at all is confirmed by a fresh one."""
        first = await self.at(name, tokens, way)
        self._seen.readings.append(first)
        if first.unread:
            again = await self.at(name, tokens, way, fresh=1)
            self._seen.readings.append(again)
            if again.unread and self._seen.above(tokens):
                raise Stop(f"Stopped at {tokens:,} tokens: two texts in a row were not read.", harm=True)

    def fails(self, name: str) -> bool:
        """Whether a length has ended in a failing server by two routes."""
        return sum(one.name == name and one.outcome is Outcome.FAILED for one in self._seen.trials) >= 2

    async def baseline(self, tokens: int, mode: Mode) -> None:
        """Everything at a short length: in one prompt if this model can go through a list, else one by one."""
        way = Way(mode, True)
        read = await self.read(BASELINE, tokens, AskMode.TOGETHER, way)
        if (read.found + bool(read.nonce)) / (NEEDLES + 1) >= LEAST_BASELINE:
            self._seen.together.add(mode.value)
        else:
            read = await self.read(BASELINE, tokens, AskMode.EACH, way)
        self._seen.baselines[mode.value] = read
        if share(read) < LEAST_BASELINE:
            self.asker.ways.given_up.add(mode)

    async def at(self, name: str, tokens: int, way: Way, fresh: int = 0) -> Reading:
        """One text at one length; what a list leaves open is asked one by one."""
        if way.mode.value in self._seen.together:
            listed = await self.read(name, tokens, AskMode.TOGETHER, way, fresh)
            if listed.complete or listed.refused:
                return listed
        return await self.read(name, tokens, AskMode.GLANCE, way, fresh)

    async def read(self, name: str, tokens: int, how: AskMode, way: Way, fresh: int = 0) -> Reading:
        """Every question has a text of its own: pages of the text before, which held the same facts at the
        same places, would answer as well as the own ones."""
        reading = Reading(name, tokens, fresh, mode=way.mode.value)
        if how is AskMode.TOGETHER:
            answer = await self._ask(reading, _all_at_once, way, LIST_TOKENS)
            if answer is not None:
                contents = answer.contents
                reading.nonce = contents.answered(answer.text)
                for needle in contents.needles:
                    reading.note(needle, needle.answered(answer.text))
            return reading
        first = range(NEEDLES) if how is AskMode.EACH else GLANCED
        rest = [index for index in range(NEEDLES) if index not in first]
        answer = await self._ask(reading, _nonce, way, follow_up=True)
        if answer is not None:
            reading.nonce = answer.contents.answered(answer.text)
        waiting = list(first)
        if reading.nonce is False:
            waiting, rest = [*waiting, *rest], []
        while waiting and not reading.refused:
            answer = await self._ask(reading, partial(_fact, waiting.pop(0)), way)
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
        way: Way,
        wanted: int = ANSWER_TOKENS,
        *,
        follow_up: bool = False,
    ) -> Said | None:
        """One question of a text; None where it brought no answer to judge. A length above the limit whose
        first question is not answered is not an accepted length, and no more is sent at it."""
        limit = self._prober.limits.first_rejected
        above = limit is not None and reading.tokens >= limit
        form = replace(way, stream=way.stream is not bool(reading.asked % 2))  # streamed and whole in turn
        cell = Cell(reading.name, reading.tokens, self._prober.tenants[0], text, wanted, form)
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
