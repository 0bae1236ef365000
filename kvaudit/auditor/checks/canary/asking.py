"""Asks one request of a canary run, and notes what came back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from kvaudit.auditor.checks.asker import CONTROL, REPLAY, replayed
from kvaudit.auditor.checks.canary.design import NONCE, PHRASE, SURFACING, WINDOW
from kvaudit.auditor.checks.canary.follow_up import note
from kvaudit.auditor.checks.canary.seen import Asked, CanarySeen, Sighting, UnknownAnswer
from kvaudit.auditor.checks.canary.strata import FINE
from kvaudit.auditor.checks.evidence_source import labelled_evidence
from kvaudit.auditor.checks.prober_protocol import Outcome, Prober, Reply, Stop
from kvaudit.auditor.checks.trials import Trial, harmed, trial
from kvaudit.auditor.checks.ways import LONGEST_TEXT, Way
from kvaudit.auditor.engines.completion import Mode
from kvaudit.auditor.text.markers import Marker, draw_marker
from kvaudit.auditor.text.matcher import Match, Matcher, frame_numbers
from kvaudit.auditor.text.prompts import WINDOW_FRAMES, Tail, bare_tokens, draw_leads, draw_nonce, phrase_tail
from kvaudit.auditor.text.spelling import Prompt

ANSWER_TOKENS = 128
"""Measured surfacing: .27 at 32 tokens, .63 at 64, 1.00 at 128."""

ENOUGH_WINDOWS = 5
"""Answers after which a model that rarely finds its phrase in a window is not asked that way any more."""

DECOYS = 60
NO_NUMBER = "the text that came back did not contain a record's number"
NO_FRAME = "how long the planted records are is not known"


@dataclass(frozen=True, slots=True)
class Cell:
    """One request of a round."""

    name: str
    tokens: int
    above: bool = False  # the limit: to be refused
    drawn: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """How a request is asked."""

    cell: Cell
    round: int
    way: Way
    tenant: str
    tail: str


@dataclass(frozen=True, slots=True)
class Answer:
    """``sightings``: what of other requests stands in it. ``prompt`` is kept for an identical repeat."""

    asked: Asked
    prompt: Prompt
    sightings: tuple[Sighting, ...]

    @property
    def hit(self) -> Sighting | None:
        return next((one for one in self.sightings if one.verified), None)

    @property
    def suspicious(self) -> bool:
        return any(one.suspicious for one in self.sightings)


class Asking:
    """Asks for one run; what it notes is its observation's."""

    def __init__(self, prober: Prober, seen: CanarySeen) -> None:
        self._prober, self._seen = prober, seen
        seen.decoys = [draw_marker(prober.draw, decoy=True) for _ in range(DECOYS)]
        seen.earlier = len(prober.earlier)
        self._earlier = frozenset(prober.earlier)
        self._matcher = Matcher([*seen.decoys, *prober.earlier])
        self._sent = 0
        self._planted: dict[Marker, Prompt] = {}  # prompts whose frames' length is known
        self.phrase_fits = 0  # tokens from which a prompt holds its phrase before its last page

    async def ask(self, question: Question, *, repeated: bool = False) -> Answer:
        """A fresh prompt. ``repeated``: it is no trial of its round any more."""
        cell, mode = question.cell, self._mode(question.way.mode, question.cell.tokens)
        tail = self._fitting(question.tail, mode, cell.tokens)
        marker = draw_marker(self._prober.draw, tenant=question.tenant, request=str(self._sent))
        self._sent += 1
        prompt = await self._prober.framed(
            marker,
            cell.tokens,
            self._tail(tail, marker),
            tenant=question.tenant,
            lead=draw_leads(self._prober.draw, 1)[0],
            mode=mode,
        )
        self._plant(marker, prompt)
        reply, noted = await self._send(question, prompt, cell.name)
        surfaced = prompt.contents is not None and prompt.contents.phrased(reply.text)
        drawn = cell.drawn and not repeated
        asked = Asked(noted, mode.value, question.way.stream, tail, drawn, surfaced)
        self._seen.asked.append(asked)
        note(self._seen, asked, control=cell.name in (CONTROL, SURFACING))
        return await self._answer(asked, prompt, reply)

    async def again(self, question: Question, answer: Answer) -> bool | None:
        """Whether the identical prompt is read now."""

        async def sent(salt: str | None) -> Trial:
            reply, noted = await self._send(question, answer.prompt, REPLAY, salt)
            held.append((reply, noted))
            return noted

        held: list[tuple[Reply, Trial]] = []
        read = await replayed(sent, self._prober.draw, shared=self._prober.limits.page)
        reply, noted = held[-1]
        asked = Asked(noted, answer.asked.mode, answer.asked.stream, answer.asked.tail)
        await self._answer(asked, answer.prompt, reply)
        return read

    async def _send(
        self, question: Question, prompt: Prompt, name: str, salt: str | None = None
    ) -> tuple[Reply, Trial]:
        room = self._prober.room(prompt.tokens, ANSWER_TOKENS)
        reply = await self._prober.ask(
            question.tenant, prompt, max_tokens=room, stream=question.way.stream, salt=salt
        )
        noted = trial(
            name, reply, tenant=question.tenant, asked=prompt.contents, room=room, repeat=question.round
        )
        noted = replace(noted, nonce=_read(noted.nonce, reply.text, prompt, above=question.cell.above))
        self._seen.trials.append(noted)
        self._seen.own_tokens += _own_tokens(reply, prompt)
        self._seen.evidence.extend(labelled_evidence(reply, noted))
        return reply, noted

    async def _answer(self, asked: Asked, prompt: Prompt, reply: Reply) -> Answer:
        """Truncated and cancelled answers are searched too: a marker in half an answer is a leak."""
        if reply.foreign:
            self._seen.unknown.append(_unknown(reply, asked.trial))
        own = prompt.contents.marker if prompt.contents is not None else None
        sightings = tuple(
            self._sighting(match, asked, reply.text) for match in self._matcher.find(reply.text, own=own)
        )
        self._seen.sightings.extend(sightings)
        await self._look_after(asked.trial, reply, sightings)
        return Answer(asked, prompt, sightings)

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
        if tail == NONCE or tokens < self.phrase_fits:
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
        return phrase_tail(prober.draw, bare_tokens(prober.limits.page), prober.wording, depth)

    def _plant(self, marker: Marker, prompt: Prompt) -> None:
        """Live from before it is sent."""
        self._matcher.add(marker)
        self._seen.planted.append(marker)
        if prompt.frame_tokens:
            self._planted[marker] = prompt
            self.phrase_fits = 5 * prompt.frame_tokens // 4 + bare_tokens(self._prober.limits.page)

    def _sighting(self, match: Match, asked: Asked, text: str) -> Sighting:
        marker: Marker = match.marker
        planted = self._planted.get(marker)
        ordinals = pages_of(text, marker, planted, self._prober.limits.page) if planted is not None else ()
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
            no_ordinals="" if ordinals else NO_NUMBER if planted is not None else NO_FRAME,
            route=asked.route,
            tail=asked.tail,
        )


def pages_of(text: str, marker: Marker, planted: Prompt, page: int) -> tuple[int, ...]:
    """About where a marker's frames stood that came back. A number beyond its prompt is not a frame's but that of the
    question, which a model repeats as well."""
    frame = planted.frame_tokens or 0
    at = (number * frame for number in frame_numbers(text, marker))
    return tuple(dict.fromkeys(tokens // page for tokens in at if tokens < planted.tokens))


def _read(given: bool | None, text: str, prompt: Prompt, *, above: bool) -> bool | None:
    """Whether a prompt was read, where its answer could be judged: who was asked for a nonce can have its own phrase
    only from its own pages as well. Of a length that should have been refused the nonce alone counts: a prompt that
    was truncated gives its phrase and has lost its end."""
    contents = prompt.contents
    if contents is None:
        return given
    if above and given and contents.tail.nonce is None:
        return None
    return True if given is False and not above and contents.phrased(text) else given


def _own_tokens(reply: Reply, prompt: Prompt) -> int:
    """Tokens of this request in whose pages a reader would see its marker: of a window the frames alone, and nothing
    that came out of a cache."""
    if reply.outcome is not Outcome.ANSWERED or prompt.contents is None:
        return 0
    frames = prompt.tokens
    if prompt.contents.tail.depth is not None:
        frames = min(frames, WINDOW_FRAMES * (prompt.frame_tokens or 0))
    return max(0, frames - (reply.cached_tokens or 0)) + (reply.completion_tokens or 0)


def _unknown(reply: Reply, noted: Trial) -> UnknownAnswer:
    """Only what its evidence says in clear."""
    kept = next((item.body for item in reply.evidence if item.kind == "response" and item.body), b"{}")
    said = orjson.loads(kept)
    return UnknownAnswer(
        noted.tokens,
        noted.name,
        noted.repeat,
        int(said.get("text_length", 0)),
        str(said.get("text_hmac_sha256", "")),
    )
