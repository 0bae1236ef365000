"""Sends the load: workers, cut-off requests and their retries, and what the pool looked like meanwhile."""

from __future__ import annotations

import asyncio
import statistics
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from kvaudit.auditor.checks.asker import Answer, Asker, Cell, Text
from kvaudit.auditor.checks.concurrency.load import Job, Lengths, Volley
from kvaudit.auditor.checks.concurrency.seen import ConcurrencySeen, Sighting, Use
from kvaudit.auditor.checks.evidence_source import labelled_evidence
from kvaudit.auditor.checks.prober_protocol import Outcome, Prober, Reply, Stop
from kvaudit.auditor.checks.trials import Trial, trial
from kvaudit.auditor.checks.ways import Way, Ways
from kvaudit.auditor.text.markers import Draw, Marker, draw_marker, draw_words
from kvaudit.auditor.text.matcher import HIT_RUN, Match, Matcher
from kvaudit.auditor.text.prompts import Nonce, Tail, draw_nonce
from kvaudit.auditor.text.spelling import Prompt

ANSWER_TOKENS = 128
"""The nonce, then the marker phrase: about 30 tokens of a real vocabulary, 80 of a byte's."""

DECOYS = 60
GLANCE = 0.05
"""Seconds between two looks at the pool and at our own loop."""

LATE = 0.25
"""Seconds by which a timer of ours may be late before the auditing machine counts as overloaded."""

UNTRIED = 0.5
"""Seconds to the first token that are expected before any was seen."""

AFTER = "after the load"
MOST_FOLLOWED = 100
"""Misses of a run that are repeated; a model that misses more is weak, or leaks, whatever their repeats say."""

RECENT = 64
NEUTRAL_WORDS = 48
FIT = 64
"""Tokens by which a prompt grows until it holds its question."""


@dataclass(frozen=True, slots=True)
class Built:
    """A prompt with whose it is, how it is asked, and what its answer must hold."""

    tenant: str
    prompt: Prompt
    marker: Marker
    nonce: Nonce
    way: Way


def question(nonce: Nonce, marker: Marker) -> Tail:
    """Asks for the nonce and leads on to the marker: an answer that was swapped names both of the
    other request, and the other's marker alone decides."""
    said = f"Code Q: {nonce.word}. The audit phrase is: {marker}. "
    return Tail(f" {said}{said}Code Q:", nonce=nonce)


def _text(draw: Draw) -> Text:
    marker = draw_marker(draw)
    return Text(marker, question(draw_nonce(draw, without=marker.words), marker))


class ConcurrencySender:
    """One campaign against a prober; ``seen`` grows as answers come."""

    def __init__(self, prober: Prober, seen: ConcurrencySeen) -> None:
        self.prober, self.seen = prober, seen
        self._matcher = Matcher(draw_marker(prober.draw, decoy=True) for _ in range(DECOYS))
        self._planted: dict[tuple[str, ...], int] = {}
        self.ways = Ways(prober)
        self.usual = Way(prober.modes[0], True)
        self._numbers = count(1)
        self._missed: list[Answer] = []
        self._first_tokens: deque[tuple[int, float]] = deque(maxlen=RECENT)
        self._alone: list[tuple[int, float]] = []  # the same of requests with nothing beside them
        self._neutral = [self._words(NEUTRAL_WORDS) for _ in range(4)]
        page = prober.limits.page
        self._shared = [self._words(min(256, max(16, 2 * page))) for _ in prober.tenants]

    def _words(self, number: int) -> str:
        return " ".join(draw_words(self.prober.draw, number)).capitalize() + "."

    # -- prompts -------------------------------------------------------------------------------

    async def build(self, tenant: int, tokens: int, lead: str = "", way: Way | None = None) -> Built:
        """A prompt of ``tokens`` tokens, or the next length in steps of 64 that holds its question; streamed by the
        most exact route unless a ``way`` is given."""
        prober = self.prober
        name = prober.tenants[tenant]
        marker = draw_marker(prober.draw, tenant=name, request=str(next(self._numbers)))
        nonce = draw_nonce(prober.draw, without=marker.words)
        tail = question(nonce, marker)
        most = (prober.limits.longest_safe or tokens) - 1
        way = way or self.usual
        while True:
            try:
                prompt = await prober.framed(marker, tokens, tail, tenant=name, lead=lead, mode=way.mode)
                break
            except ValueError:
                way = self.ways.exact(way)
                if tokens + FIT > most:
                    raise
                tokens += FIT
        self.live(marker, tokens)
        return Built(name, prompt, marker, nonce, way)

    def live(self, marker: Marker, tokens: int) -> None:
        """Make a marker findable; before its request is sent."""
        self._matcher.add(marker)
        self._planted[marker.words] = tokens

    async def follow_up(self) -> None:
        """Repeat what missed its nonce under load, identical and fresh, now that nothing else is at work."""
        seen = self.seen
        asker = Asker(self.prober, seen.trials, seen.evidence, seen.misses)
        for answer in self._missed[:MOST_FOLLOWED]:
            mode = answer.way.mode
            if not seen.misses.of(mode).control_asked:
                await asker.control(answer.trial.tenant, mode)
            cell = Cell(AFTER, answer.trial.tokens, answer.trial.tenant, _text, ANSWER_TOKENS)
            await asker.follow_up(cell, answer)

    async def _for(self, job: Job) -> Built:
        lead = ""
        if job.arm == "shared prefix":
            lead = self._shared[job.tenant]
        elif job.kind == "neutral":
            lead = self._neutral[job.number % len(self._neutral)]
        return await self.build(job.tenant, job.tokens, lead, self.ways.next(job.arm, job.tokens))

    # -- sending -------------------------------------------------------------------------------

    async def warm_up(self, lengths: Lengths) -> None:
        """A request per length class, alone: what a first token takes here, before anything is cut off."""
        for tokens in warm_ups(lengths):
            reply = await self.send(await self.build(0, tokens), "warm-up", 0)
            if reply.first_token is not None:
                self._alone.append((reply.tokens_sent, reply.first_token))

    async def volley(self, volley: Volley) -> None:
        """The victim alone until it is cut off, then all the others (and its retry) at once."""
        victim = await self._for(volley.victim)
        followers = [(await self._for(job), job) for job in volley.followers]
        if volley.victim.retry:
            followers.append((victim, volley.victim))
        cut = (volley.victim.abort or 1.0) * self._expected_alone(victim.prompt.tokens)
        reply = await self.send(victim, volley.victim.arm, volley.victim.number, cut)
        if reply.outcome is not Outcome.CANCELLED and reply.first_token is not None:
            self._alone.append((victim.prompt.tokens, reply.first_token))
        self.seen.retried += volley.victim.retry
        await self._together([self.send(built, job.arm, job.number) for built, job in followers])

    async def arm(self, name: str, jobs: list[Job], workers: int) -> None:
        """Work through ``jobs`` with ``workers`` at once, watching pool and loop. Raises `Stop` at the
        first hit, and whenever nothing more may be sent; what is in flight then is dropped."""
        use = self.seen.use.setdefault(name, Use())
        queue: Iterator[Job] = iter(jobs)
        watch = asyncio.ensure_future(self._watch(use))
        try:
            await self._together([self._work(queue) for _ in range(min(workers, len(jobs)))])
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _together(self, works: Sequence[Coroutine[object, object, object]]) -> None:
        """All at once; the first `Stop` cancels the others and is raised."""
        stopped: list[BaseException] = []
        try:
            async with asyncio.TaskGroup() as group:
                for work in works:
                    group.create_task(work)
        except* Stop as several:
            stopped += _leaves(several)
        if stopped:
            raise stopped[0]

    async def _work(self, queue: Iterator[Job]) -> None:
        for job in queue:
            built = await self._for(job)
            cut = None if job.abort is None else job.abort * self._expected(job.tokens)
            reply = await self.send(built, job.arm, job.number, cut)
            if reply.outcome is Outcome.CANCELLED and job.retry:
                self.seen.retried += 1
                await self.send(built, job.arm, job.number)

    async def send(self, built: Built, arm: str, number: int, cut: float | None = None) -> Reply:
        """Send, note the trial, search the answer. Raises `Stop` on a foreign marker."""
        room = self.prober.room(built.prompt.tokens, ANSWER_TOKENS)
        reply = await self.prober.ask(
            built.tenant, built.prompt, max_tokens=room, cancel_after=cut, stream=built.way.stream
        )
        noted = trial(arm, reply, tenant=built.tenant, asked=built.prompt.contents, room=room, repeat=number)
        self.seen.trials.append(noted)
        self.seen.misses.note(noted)
        if noted.missed:
            self._missed.append(Answer(noted, reply, built.prompt, built.way))
        if reply.outcome is Outcome.ANSWERED:
            if reply.first_token is not None:
                self._first_tokens.append((built.prompt.tokens, reply.first_token))
            self.seen.own_asked += 1
            self.seen.own_markers += any(
                match.run >= HIT_RUN for match in Matcher([built.marker]).find(reply.text)
            )
        self.search(reply, built.marker, noted)
        return reply

    def search(self, reply: Reply, own: Marker, noted: Trial) -> None:
        """Look for any other marker, in half answers too. Raises `Stop` on a hit."""
        arm = noted.name
        sightings = [
            self._sighting(match, reply, own, arm) for match in self._matcher.find(reply.text, own=own)
        ]
        self.seen.sightings.extend(sightings)
        if sightings or reply.outcome is not Outcome.CANCELLED:
            self.seen.evidence.extend(labelled_evidence(reply, noted))
        for one in sightings:
            if not one.suspicious and not one.decoy:
                raise Stop(f"Stopped at the first verified hit: {one.kind}, arm {arm}.", harm=True)

    def _sighting(self, match: Match, reply: Reply, own: Marker, arm: str) -> Sighting:
        return Sighting(
            reader=own.tenant,
            planted_by=match.marker.tenant,
            words=match.matched,
            run=match.run,
            tokens=reply.tokens_sent,
            planted_tokens=self._planted.get(match.marker.words, 0),
            arm=arm,
            decoy=match.marker.decoy,
            suspicious=match.suspicious,
        )

    def _expected(self, tokens: int) -> float:
        """Seconds to the first token, from recent answers of about this length."""
        near = [seconds for known, seconds in self._first_tokens if tokens / 2 <= known <= tokens * 2]
        near = near or [seconds for _, seconds in self._first_tokens]
        return statistics.median(near) if near else UNTRIED

    def _expected_alone(self, tokens: int) -> float:
        """Seconds to the first token with nothing beside it: on the line between the nearest shorter
        and longer request that was sent alone."""
        if not self._alone:
            return self._expected(tokens)
        shorter = max((timing for timing in self._alone if timing[0] <= tokens), default=min(self._alone))
        longer = min((timing for timing in self._alone if timing[0] >= tokens), default=max(self._alone))
        if longer[0] <= shorter[0]:
            return shorter[1]
        share = (tokens - shorter[0]) / (longer[0] - shorter[0])
        return max(1e-3, shorter[1] + share * (longer[1] - shorter[1]))

    # -- watching ------------------------------------------------------------------------------

    async def _watch(self, use: Use) -> None:
        while True:
            began = self.prober.now()
            await self.prober.sleep(GLANCE)
            self.seen.loop_looks += 1
            self.seen.loop_late += self.prober.now() - began - GLANCE > LATE
            share = pool_share(await self.prober.counters())
            use.looks += 1
            if share is not None:
                use.shares.append(share)


def warm_ups(lengths: Lengths) -> tuple[int, ...]:
    """Lengths that are sent alone first."""
    return lengths.short.middle, lengths.mid.middle, lengths.long.low, lengths.long.high


def pool_share(counters: Mapping[str, float]) -> float | None:
    """The fullest node's share of its pool; None where no node shows it."""
    shares = [value for name, value in counters.items() if name.startswith("pool_share/")]
    return max(shares, default=None)


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for fault in group.exceptions:
        found += _leaves(fault) if isinstance(fault, BaseExceptionGroup) else [fault]
    return found
