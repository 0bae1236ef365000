"""Stores a session, pushes it out of the pool with other requests, and asks for it again.

A second tier, a snapshot or an offloaded page may bring back another session's content, or none, with
HTTP 200 and clean counts (llama.cpp #27148, LMCache #3258). So the session comes back with the same
prefix and asks for facts that only it was told.
"""

from __future__ import annotations

from kvaudit.auditor.checks.concurrency.arms import ANSWER_TOKENS, ConcurrencySender
from kvaudit.auditor.checks.concurrency.load import Lengths
from kvaudit.auditor.checks.concurrency.seen import Visit
from kvaudit.auditor.checks.prober_protocol import Limits, Outcome
from kvaudit.auditor.checks.trials import trial
from kvaudit.auditor.checks.ways import Way
from kvaudit.auditor.text.markers import Marker, draw_marker
from kvaudit.auditor.text.prompts import Needle, draw_needles

VISITS = 3
FACTS = 3
"""Facts asked each time. Six of nine lost, none of eighteen in the controls: p = .0003 (Fisher)."""

PAST_FULL = 1.1
"""Fillers' tokens over the largest pool."""


class Session:
    """What one tenant stored: frames of one marker with ten facts among them."""

    def __init__(self, sender: ConcurrencySender, tokens: int, way: Way) -> None:
        self._load, self._tokens, self._way = sender, tokens, way
        draw = sender.prober.draw
        self.tenant = sender.prober.tenants[0]
        self.marker: Marker = draw_marker(draw, tenant=self.tenant, request="visit")
        self.needles: tuple[Needle, ...] = draw_needles(draw)
        self.cached: int | None = None  # of the first question of the last call of `ask`
        sender.live(self.marker, tokens)

    async def ask(self, arm: str, number: int, first: int) -> tuple[int, int]:
        """Ask `FACTS` facts from the ``first`` on; (found, answered). Raises `Stop` on a foreign marker."""
        sender, prober = self._load, self._load.prober
        found = asked = 0
        for at in range(first, first + FACTS):
            needle = self.needles[at % len(self.needles)]
            prompt = await prober.framed(
                self.marker,
                self._tokens,
                needle.tail,
                self.needles,
                tenant=self.tenant,
                mode=self._way.mode,
            )
            room = prober.room(prompt.tokens, ANSWER_TOKENS)
            reply = await prober.ask(self.tenant, prompt, max_tokens=room, stream=self._way.stream)
            noted = trial(arm, reply, tenant=self.tenant, asked=None, room=room, repeat=number)
            sender.seen.trials.append(noted)
            if at == first:
                self.cached = reply.cached_tokens
            if reply.outcome is Outcome.ANSWERED:
                asked += 1
                found += needle.answered(reply.text)
            sender.search(reply, self.marker, noted)
        return found, asked


def filler_tokens(limits: Limits) -> int | None:
    """Tokens that push the largest pool past 100 %; None when no pool is known."""
    pool = limits.largest_pool or limits.pool
    return None if pool is None else int(pool * PAST_FULL) + 1


def visit_tokens(limits: Limits, lengths: Lengths) -> int:
    """Prompt tokens of one return visit, the last filler in full."""
    return 3 * FACTS * session_tokens(lengths) + (filler_tokens(limits) or 0) + lengths.long.middle


def session_tokens(lengths: Lengths) -> int:
    return lengths.mid.middle


async def visit(sender: ConcurrencySender, number: int, lengths: Lengths) -> None:
    """One return visit; appends to ``seen.visits`` when it came to its end."""
    prober = sender.prober
    wanted = filler_tokens(prober.limits)
    assert wanted is not None
    way = sender.ways.next("visit", session_tokens(lengths))
    session = Session(sender, session_tokens(lengths), way)
    before = await session.ask("visit before", number, 0)
    filled = count = 0
    while filled <= wanted:
        built = await sender.build((count + 1) % 2, lengths.long.middle)
        reply = await sender.send(built, "filler", count)
        if not reply.valid and count >= 3 and filled == 0:
            break  # nothing gets through: the trials say so
        filled += built.prompt.tokens if reply.outcome is Outcome.ANSWERED else 0
        count += 1
        if count > 4 * (wanted // lengths.long.middle + 1):
            break
    after = await session.ask("visit after", number, FACTS)
    cached = session.cached
    fresh = await Session(sender, session_tokens(lengths), way).ask("visit fresh", number, 0)
    sender.seen.visits.append(Visit(number, before, after, fresh, filled, cached))
