"""Sends a check's prompts and follows up at once what their answers miss (`kvaudit.auditor.checks.misses` judges it).

Every check asks alike: a fresh marker and tail, a prompt of exact length, the answer reduced to a trial, its evidence
labelled, a look at the target's health after what looks like harm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from kvaudit.auditor.checks.evidence_source import labelled_evidence
from kvaudit.auditor.checks.misses import Compared, Miss, Misses, MissKind
from kvaudit.auditor.checks.prober_protocol import Outcome, Prober, Reply, Stop
from kvaudit.auditor.checks.trials import NONCE_ROOM, VOID_SHARE, Trial, harmed, trial, voids
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

_FAILED = (Outcome.FAILED, Outcome.BROKEN, Outcome.TIMED_OUT)


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
    where there is room; more are asked of a model whose short answers needed more."""

    name: str
    tokens: int
    tenant: str
    text: Callable[[Draw], Text] = nonce_text
    wanted: int = ROOMS[0]
    stream: bool = True
    lead: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a cell brought. ``prompt`` is kept for an identical repeat, ``reply`` for a check that reads its text."""

    trial: Trial
    reply: Reply
    prompt: Prompt


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
    misses: Misses
    planned: int = 0
    unhealthy: str = ""
    _failed: Counter[str] = field(default_factory=Counter, repr=False)  # in a row, by the cell's name

    async def ask(self, cell: Cell, repeat: int = 0, *, lead: str = "", compare: bool = True) -> Answer:
        """Ask a fresh prompt, and follow it up when it misses. ``compare``: a miss that persists is asked ten times
        more, beside ten short prompts; False at and above the limit, where no 200 is forgiven. Raises `Stop` where
        the target was harmed, failed three times in a row, or brought more void trials than a pass may have."""
        answer = await self.send(cell, repeat, lead=lead)
        if answer.trial.missed and not self.misses.control_asked:
            noted = len(self.trials) - 1
            await self.control(cell.tenant)
            if self.prober.room(cell.tokens, cell.wanted) < (self.misses.room or 0):
                self.trials[noted] = replace(
                    answer.trial, nonce=None, cramped=True
                )  # it had no room to think first
                answer = await self.send(cell, repeat)
        self.misses.note(answer.trial)
        if answer.trial.missed:
            await self.follow_up(cell, answer, compare=compare)
        return answer

    # -- following up --------------------------------------------------------------------------

    async def follow_up(self, cell: Cell, answer: Answer, *, compare: bool = True) -> Miss:
        """Repeat a missed prompt at once, identical and fresh, and note what that showed. Nothing is repeated where
        short prompts are missed as well, or where a length is known to be missed more often than they are."""
        if self.misses.control_lost or (compare and self.misses.differs):
            miss = Miss(answer.trial, above=not compare)
            self.misses.add(miss)
            return miss
        repeat, cell = answer.trial.repeat, replace(cell, wanted=max(cell.wanted, FOREIGN_ROOM))
        replay = await self._replayed(cell, answer)
        fresh = await self._noted(cell, repeat + 1)
        miss = Miss(answer.trial, replay, fresh.nonce, above=not compare)
        self.misses.add(miss)
        if compare:
            if miss.kind is MissKind.PERSISTENT and cell.name not in self.misses.compared:
                await self._compare(cell, repeat + 2)
            while len(self.misses.controls) < CONTROLS:
                await self._control(cell.tenant)
        return miss

    async def _noted(self, cell: Cell, repeat: int) -> Trial:
        """A fresh prompt that follows up another; when it misses only its identical repeat is asked."""
        answer = await self.send(cell, repeat)
        self.misses.note(answer.trial)
        if answer.trial.missed:
            self.misses.explained += await self._replayed(cell, answer) is False
        return answer.trial

    async def _replayed(self, cell: Cell, answer: Answer) -> bool | None:
        """Whether the identical prompt is read now."""

        async def again(salt: str | None) -> Trial:
            return (await self._sent(cell, answer.prompt, REPLAY, answer.trial.repeat, salt)).trial

        return await replayed(again, self.prober.draw, shared=self._template_pages(cell.tenant))

    async def _compare(self, cell: Cell, repeat: int) -> None:
        compared = self.misses.compared[cell.name] = Compared(cell.tokens)
        for number in range(REPEATS):
            compared.at.append(await self._noted(cell, repeat + number))
            compared.short.append(await self._control(cell.tenant))

    def _template_pages(self, tenant: str) -> int:
        """Tokens that the target adds itself, which every prompt may share, rounded up to a page."""
        page = self.prober.limits.page
        return -(-self.prober.template.get(tenant, 0) // page) * page

    # -- the positive control ------------------------------------------------------------------

    async def control(self, tenant: str) -> bool:
        """Find the output tokens in which a short prompt's nonce is given; False where it never is."""
        self.misses.control_asked = True
        for room in ROOMS:
            self.misses.room = room
            self.misses.controls.clear()
            for _ in range(TRIES):
                if (await self._control(tenant)).read:
                    return True
        self.misses.room = None
        return False

    async def _control(self, tenant: str) -> Trial:
        """The answer to a short prompt, in as much room as the others have."""
        number = len(self.misses.controls)
        tokens = CONTROL_TOKENS + self.prober.template.get(tenant, 0)
        cell = Cell(
            CONTROL, min(tokens, self.prober.limits.longest_safe or tokens), tenant, stream=number % 2 == 0
        )
        answer = await self.send(cell, number)
        self.misses.controls.append(answer.trial)
        if answer.trial.missed and self.misses.control_read:
            replay = await self._replayed(cell, answer)
            self.misses.controls_explained += replay is False
            self.misses.controls_flipped += replay is True
        return answer.trial

    # -- sending -------------------------------------------------------------------------------

    async def send(self, cell: Cell, repeat: int = 0, *, lead: str = "") -> Answer:
        """A fresh prompt, whose answer is not followed up."""
        draw = self.prober.draw
        text = cell.text(draw)
        added = self.prober.template.get(cell.tenant, 0)
        tokens = (
            max(cell.tokens, added + CONTROL_TOKENS) if added else cell.tokens
        )  # a system prompt must leave room
        first = lead or (draw_leads(draw, 1)[0] if cell.lead else "")
        prompt = await self.prober.framed(
            text.marker, tokens, text.tail, text.needles, tenant=cell.tenant, lead=first
        )
        return await self._sent(cell, prompt, cell.name, repeat, None)

    async def _sent(self, cell: Cell, prompt: Prompt, name: str, repeat: int, salt: str | None) -> Answer:
        needed = self.misses.room or ROOMS[0]
        room = self.prober.room(cell.tokens, max(cell.wanted, needed))
        reply = await self.prober.ask(cell.tenant, prompt, max_tokens=room, stream=cell.stream, salt=salt)
        found = trial(
            name,
            reply,
            tenant=cell.tenant,
            asked=prompt.contents,
            room=room,
            repeat=repeat,
            needed=NONCE_ROOM if needed == ROOMS[0] else needed,
        )
        self.trials.append(found)
        self.evidence.extend(labelled_evidence(reply, found))
        if problem := await harmed(self.prober, reply):
            self.unhealthy = problem
            raise Stop(f"Stopped at {found.tokens:,} tokens: {problem}", harm=True)
        self._break_off(cell, found)
        return Answer(found, reply, prompt)

    def _break_off(self, cell: Cell, found: Trial) -> None:
        """`Stop` where sending more can only cost."""
        self._failed[cell.name] = self._failed[cell.name] + 1 if found.outcome in _FAILED else 0
        if self._failed[cell.name] >= FAILURES:
            why = f"{found.outcome.value} ({found.status}{f': {found.error}' if found.error else ''})"
            raise Stop(
                f"Stopped after {FAILURES} failures in a row, the last at {found.tokens:,} tokens: {why}."
            )
        void = sum(not one.outcome.valid and one.outcome is not Outcome.CANCELLED for one in self.trials)
        if self.planned and void > VOID_SHARE * self.planned:
            raise Stop(
                f"Stopped, since {voids(self.trials)} of {self.planned} planned trials already forbid a pass."
            )
