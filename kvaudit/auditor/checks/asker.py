"""Sends a check's prompts and follows up at once what their answers miss (`kvaudit.auditor.checks.misses` judges it).

Every check asks alike: a fresh marker and tail, a prompt of exact length, the answer reduced to a trial, its evidence
labelled, a look at the target's health after what looks like harm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from kvaudit.auditor.checks.evidence_source import labelled_evidence
from kvaudit.auditor.checks.misses import Compared, Miss, MissKind
from kvaudit.auditor.checks.misses_by_way import MissesByWay
from kvaudit.auditor.checks.prober_protocol import Outcome, Prober, Reply, Stop
from kvaudit.auditor.checks.trials import (
    FAILED,
    NONCE_ROOM,
    Trial,
    already_void,
    harmed,
    how_it_failed,
    trial,
)
from kvaudit.auditor.checks.ways import EITHER, Way, Ways
from kvaudit.auditor.engines.completion import Mode
from kvaudit.auditor.text.markers import Draw, Marker, draw_marker
from kvaudit.auditor.text.prompts import Needle, Tail, draw_leads, draw_nonce
from kvaudit.auditor.text.spelling import Prompt
from kvaudit.auditor.verdict import Evidence

ROOMS = (24, 128, 512, 1024)
"""Output tokens in which a short prompt's nonce is looked for, until it is given: a reasoning model thinks first."""

FOREIGN_ROOM = 128
"""Output tokens of what follows up a miss: in as many, other pages say whose they are (.27 of them do in 32)."""

CONTROL_TOKENS = 256
TRIES = 3
"""Short prompts in one room; a single one that is read shows that the room is enough."""

CONTROLS = 30
"""Short prompts that a miss is compared with: how often they are missed, and which words are the model's own."""

REPEATS = 10
"""Answers at a length that missed twice, and as many short ones beside them."""

FAILURES = 3
"""Of one cell in a row, after which a check sends nothing more: a server that dies of such prompts is fed no other."""

REPLAY, CONTROL = "replay", "control"
FOLLOWING_UP = (REPLAY, CONTROL)
"""Names of trials that are not a check's own: its counts leave them out."""


@dataclass(frozen=True, slots=True)
class Text:
    """What a prompt is framed of, fresh for each."""

    marker: Marker
    tail: Tail
    needles: tuple[Needle, ...] = ()


def nonce_text(draw: Draw) -> Text:
    """Frames of a marker, and a word asked at their end."""
    marker = draw_marker(draw)
    return Text(marker, draw_nonce(draw, without=marker.words).tail)


@dataclass(frozen=True, slots=True)
class Cell:
    """How a prompt is asked. ``text`` draws a fresh one, ``lead``: its first words as well. ``wanted``: output tokens,
    where there is room; more are asked of a model whose short answers needed more. ``way``: None = the next in turn."""

    name: str
    tokens: int
    tenant: str
    text: Callable[[Draw], Text] = nonce_text
    wanted: int = ROOMS[0]
    way: Way | None = None
    lead: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a cell brought. ``prompt`` and ``way`` are kept for an identical repeat, ``reply`` for a check that reads
    its text."""

    trial: Trial
    reply: Reply
    prompt: Prompt
    way: Way


async def replayed(
    again: Callable[[str | None], Awaitable[Trial]], draw: Draw, *, shared: int
) -> bool | None:
    """Whether an identical prompt, which ``again`` sends with a salt or without, is read now. A fresh salt keeps it out
    of the cache, whose pages repeat the damage; None where it came from there all the same (more than ``shared`` cached
    tokens), or may have."""
    salt: str | None = f"kvaudit-replay-{draw(10**9):09d}"
    try:
        found = await again(salt)
    except ValueError:  # this way of asking carries no salt
        salt = None
    if salt is None or found.outcome is Outcome.UNANSWERED:  # or this target does not take one
        salt = None
        found = await again(None)
    if found.cached_tokens is None:
        return found.nonce if salt else None
    return found.nonce if found.cached_tokens <= shared else None


@dataclass(slots=True)
class Asker:
    """Asks for one check; ``trials``, ``evidence`` and ``misses`` are its observation's own and grow. ``planned``:
    trials of a whole run, 0 = not known. ``unhealthy``: the sentence of a target that a request has harmed."""

    prober: Prober
    trials: list[Trial]
    evidence: list[Evidence]
    misses: MissesByWay
    planned: int = 0
    unhealthy: str = ""
    streams: Sequence[bool] = EITHER
    ways: Ways = field(init=False)
    _failed: Counter[tuple[str, str]] = field(
        default_factory=Counter, repr=False
    )  # in a row, by the cell's name and its route, "" = any

    def __post_init__(self) -> None:
        self.ways = Ways(self.prober, self.streams)

    async def ask(self, cell: Cell, repeat: int = 0, *, lead: str = "", compare: bool = True) -> Answer:
        """Ask a fresh prompt, and follow it up when it misses. ``compare``: a miss that persists is asked ten times
        more, beside ten short prompts; False at and above the limit, where no 200 is forgiven. Raises `Stop` where
        the target was harmed, failed three times in a row, or brought more void trials than a pass may have."""
        answer = await self.send(cell, repeat, lead=lead)
        cell, misses = replace(cell, way=answer.way), self.misses.of(answer.way.mode)
        if answer.trial.missed and not misses.control_asked:
            noted = len(self.trials) - 1
            await self.control(cell.tenant, answer.way.mode)
            if self.prober.room(cell.tokens, cell.wanted) < (misses.room or 0):
                self.trials[noted] = replace(
                    answer.trial, nonce=None, cramped=True
                )  # it had no room to think first
                answer = await self.send(cell, repeat)
        misses.note(answer.trial)
        if answer.trial.missed:
            await self.follow_up(cell, answer, compare=compare)
        return answer

    # -- following up --------------------------------------------------------------------------

    async def follow_up(self, cell: Cell, answer: Answer, *, compare: bool = True) -> Miss:
        """Repeat a missed prompt at once, identical and fresh, in the way that it was asked, and note what that showed.
        Nothing is repeated where short prompts are missed as well, or where a length is known to be missed more often
        than they are."""
        misses = self.misses.of(answer.way.mode)
        if misses.control_lost or (compare and misses.differs):
            miss = Miss(answer.trial, above=not compare)
            misses.add(miss)
            return miss
        repeat = answer.trial.repeat
        cell = replace(cell, wanted=max(cell.wanted, FOREIGN_ROOM), way=answer.way)
        replay = await self._replayed(cell, answer)
        fresh = await self._noted(cell, repeat + 1)
        miss = Miss(answer.trial, replay, fresh.nonce, above=not compare)
        misses.add(miss)
        if compare:
            if miss.kind is MissKind.PERSISTENT and cell.name not in misses.compared:
                await self._compare(cell, repeat + 2)
            while len(misses.controls) < CONTROLS:
                await self._control(cell.tenant, answer.way.mode)
        return miss

    async def _noted(self, cell: Cell, repeat: int) -> Trial:
        """A fresh prompt that follows up another; when it misses only its identical repeat is asked."""
        answer = await self.send(cell, repeat)
        misses = self.misses.of(answer.way.mode)
        misses.note(answer.trial)
        if answer.trial.missed:
            misses.explained += await self._replayed(cell, answer) is False
        return answer.trial

    async def _replayed(self, cell: Cell, answer: Answer) -> bool | None:
        """Whether the identical prompt is read now."""

        async def again(salt: str | None) -> Trial:
            return (
                await self._sent(cell, answer.way, answer.prompt, REPLAY, answer.trial.repeat, salt)
            ).trial

        shared = self._template_pages(answer.way.mode, cell.tenant)
        return await replayed(again, self.prober.draw, shared=shared)

    async def _compare(self, cell: Cell, repeat: int) -> None:
        assert cell.way is not None
        mode = cell.way.mode
        compared = self.misses.of(mode).compared[cell.name] = Compared(cell.tokens)
        for number in range(REPEATS):
            compared.at.append(await self._noted(cell, repeat + number))
            compared.short.append(await self._control(cell.tenant, mode))

    def _template_pages(self, mode: Mode, tenant: str) -> int:
        """Tokens that the target adds itself, which every prompt may share, rounded up to a page."""
        page = self.prober.limits.page
        return -(-self.prober.templates.get((mode, tenant), 0) // page) * page

    # -- the positive control ------------------------------------------------------------------

    async def controls(self, tenant: str) -> bool:
        """Ask short prompts in every way; a route where none is read is asked no more. False where none is left."""
        for mode in self.prober.modes:
            if not await self.control(tenant, mode):
                self.ways.given_up.add(mode)
        return not self.misses.control_lost

    async def control(self, tenant: str, mode: Mode) -> bool:
        """Find the output tokens in which a short prompt's nonce is given; False where it never is."""
        misses = self.misses.of(mode)
        misses.control_asked = True
        for room in ROOMS:
            misses.room = room
            misses.controls.clear()
            for _ in range(TRIES):
                if (await self._control(tenant, mode)).read:
                    return True
        misses.room = None
        return False

    async def _control(self, tenant: str, mode: Mode) -> Trial:
        """The answer to a short prompt, in as much room as the others have."""
        misses = self.misses.of(mode)
        number = len(misses.controls)
        tokens = CONTROL_TOKENS + self.prober.templates.get((mode, tenant), 0)
        way = Way(mode, self.streams[number % len(self.streams)])
        cell = Cell(CONTROL, min(tokens, self.prober.limits.longest_safe or tokens), tenant, way=way)
        answer = await self.send(cell, number)
        misses.controls.append(answer.trial)
        if answer.trial.missed and misses.control_read:
            replay = await self._replayed(cell, answer)
            misses.controls_explained += replay is False
            misses.controls_flipped += replay is True
        return answer.trial

    # -- sending -------------------------------------------------------------------------------

    async def send(self, cell: Cell, repeat: int = 0, *, lead: str = "") -> Answer:
        """A fresh prompt, whose answer is not followed up."""
        draw = self.prober.draw
        text = cell.text(draw)
        first = lead or (draw_leads(draw, 1)[0] if cell.lead else "")
        way = cell.way or self.ways.next(cell.name, cell.tokens)
        try:
            prompt = await self._framed(cell, text, way, first)
        except ValueError:  # no text of this length was found
            if (exact := self.ways.exact(way)) == way:
                raise
            way, prompt = exact, await self._framed(cell, text, exact, first)
        return await self._sent(cell, way, prompt, cell.name, repeat, None)

    async def _framed(self, cell: Cell, text: Text, way: Way, lead: str) -> Prompt:
        added = self.prober.templates.get((way.mode, cell.tenant), 0)
        tokens = (
            max(cell.tokens, added + CONTROL_TOKENS) if added else cell.tokens
        )  # a system prompt must leave room
        return await self.prober.framed(
            text.marker, tokens, text.tail, text.needles, tenant=cell.tenant, lead=lead, mode=way.mode
        )

    async def _sent(
        self, cell: Cell, way: Way, prompt: Prompt, name: str, repeat: int, salt: str | None
    ) -> Answer:
        needed = self.misses.of(way.mode).room or ROOMS[0]
        room = self.prober.room(cell.tokens, max(cell.wanted, needed))
        reply = await self.prober.ask(cell.tenant, prompt, max_tokens=room, stream=way.stream, salt=salt)
        found = trial(
            name,
            reply,
            tenant=cell.tenant,
            asked=prompt.contents,
            room=room,
            repeat=repeat,
            needed=NONCE_ROOM if needed == ROOMS[0] else needed,
        )
        found = replace(found, mode=way.mode.value, stream=way.stream)
        self.trials.append(found)
        self.evidence.extend(labelled_evidence(reply, found))
        if problem := await harmed(self.prober, reply):
            self.unhealthy = problem
            raise Stop(f"Stopped at {found.tokens:,} tokens: {problem}", harm=True)
        self._break_off(cell, found)
        return Answer(found, reply, prompt, way)

    def _break_off(self, cell: Cell, found: Trial) -> None:
        """`Stop` where sending more can only cost."""
        keys = [(cell.name, ""), (cell.name, found.mode)]
        for key in keys:
            self._failed[key] = self._failed[key] + 1 if found.outcome in FAILED else 0
        if any(self._failed[key] >= FAILURES for key in keys):
            raise Stop(
                f"Stopped after {FAILURES} failures in a row, the last at {found.tokens:,} tokens: "
                f"{how_it_failed(found)}."
            )
        if why := already_void(self.trials, self.planned):
            raise Stop(why)
