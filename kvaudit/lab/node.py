"""A node: one engine process with its pool, cache, model, limits, waiting line and counters.

What a prefill, a decode or a unified worker does with them is in `kvaudit.lab.scheduler`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import numpy as np

from kvaudit.lab.clock import Compute, now, wait, wall
from kvaudit.lab.config import LabConfig
from kvaudit.lab.counters import Counters
from kvaudit.lab.faults.base import Faults
from kvaudit.lab.limits import NodeLimits, intake
from kvaudit.lab.model import InductionModel, KVSequence
from kvaudit.lab.pool import KVPool, Pages, Tokens
from kvaudit.lab.prefix_cache import Match, PrefixCache
from kvaudit.lab.request import BatchRow, Call, FinishAbort, FinishLength, FinishStop, Request, text_of
from kvaudit.lab.transfer import Fabric

log = logging.getLogger(__name__)

STEPS = 8
"""Tokens decoded per turn of a request (SGLang: num_continuous_decode_steps)."""

_ENDS = {FinishLength: "length", FinishStop: "stop"}
Attempt = Callable[[], "tuple[Match, Pages] | None"]


class Trace(Protocol):
    """What tests may watch: every read of the pool by attention."""

    def read(self, node: Node, request: Request, sequence: KVSequence) -> None: ...


class Node(NodeLimits, ABC):
    """One engine process: a pool, a cache, a model, and the limits that follow from them."""

    def __init__(
        self, config: LabConfig, role: str, faults: Faults, fabric: Fabric, compute: Compute, seed: int = 0
    ) -> None:
        self.config, self.role, self.faults, self.fabric, self.compute = config, role, faults, fabric, compute
        self.durations = config.durations
        self.model = InductionModel(seed)
        self.random = random.Random(seed)
        self.trace: Trace | None = None
        self.stages: Counter[str] = Counter()
        self.rows: list[BatchRow] = []
        self._restart(config.pool(role))

    def restart_with(self, tokens: int) -> None:
        """The process is started anew with a pool of ``tokens``; requests at work keep the old one."""
        self._restart(tokens)

    def _restart(self, tokens: int) -> None:
        began = time.perf_counter()
        self.pool = KVPool(tokens, self.config.page_size, 16, self.config.order)
        small = self.config.scale == "small"
        cached = self.config.prefix_cache != "off" and self.role != "decode"
        tier = self.pool.pages * 4 if cached and small and self.config.second_tier else 0
        self.cache = PrefixCache(self.pool, self.faults, enabled=cached, host_pages=tier)
        self.counters = Counters()
        self.started = wall()
        self.allocation_seconds = round(time.perf_counter() - began, 6)
        self._gpu = asyncio.Lock()
        self._line: deque[tuple[Attempt, asyncio.Future[tuple[Match, Pages]]]] = deque()
        self._wedged: asyncio.Future[None] | None = None

    @property
    def idle(self) -> bool:
        """Nothing is served or written; what the cache keeps does not count."""
        return not any(self.stages.values()) and self.pool.used_tokens == self.cache.cached_tokens

    @property
    def running(self) -> int:
        return self.stages["running"]

    @property
    def waiting(self) -> int:
        return sum(count for stage, count in self.stages.items() if stage != "running")

    def intake(self, call: Call) -> Request:
        """Validate against this node's limits; see `kvaudit.lab.limits`."""
        self.counters.requests += 1
        self.faults.received(call)
        return intake(self, call)

    # --- pages ---
    async def reserve(self, count: int) -> Pages:
        """``count`` pages, waiting in line while the pool (and what the cache may give up) is short."""
        _, pages = await self._in_line(lambda: self._attempt(None, "", count))
        return pages

    async def admit(self, tokens: Tokens, salt: str, count: int) -> tuple[Match, Pages]:
        """The cached beginning of a prompt, locked, and fresh pages up to ``count`` in all. Whoever waits
        in line holds nothing: two that each locked what the other needs would wait for ever."""
        return await self._in_line(lambda: self._attempt(tokens, salt, count))

    def _attempt(self, tokens: Tokens | None, salt: str, count: int) -> tuple[Match, Pages] | None:
        match = Match([], np.empty(0, np.int32), []) if tokens is None else self.cache.match(tokens, salt)
        pages = self._try_reserve(count - len(match.pages))
        if pages is None:
            self.cache.unlock(match)
            return None
        return match, pages

    async def _in_line(self, attempt: Attempt) -> tuple[Match, Pages]:
        if not self._line:
            given = attempt()
            if given is not None:
                return given
        turn: asyncio.Future[tuple[Match, Pages]] = asyncio.get_running_loop().create_future()
        entry = (attempt, turn)
        self._line.append(entry)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                match, pages = turn.result()
                self.cache.unlock(match)
                self.release(pages)
            elif entry in self._line:
                self._line.remove(entry)
                self._serve_line()
            raise

    def _try_reserve(self, count: int) -> Pages | None:
        short = count - self.pool.free_pages
        if short > 0 and not self.cache.evict(short):
            return None
        return self.pool.reserve(count)

    def release(self, pages: Pages | list[int]) -> None:
        self.pool.release(pages)
        self._serve_line()

    def _serve_line(self) -> None:
        while self._line:
            attempt, turn = self._line[0]
            if not turn.done():
                given = attempt()
                if given is None:
                    return
                turn.set_result(given)
            self._line.popleft()

    # --- work shared by the roles ---
    @asynccontextmanager
    async def stage(self, name: str) -> AsyncIterator[None]:
        """Count a request in a queue while it is there."""
        self.stages[name] += 1
        try:
            yield
        finally:
            self.stages[name] -= 1

    async def wedge_if_due(self, prompt_tokens: int) -> None:
        """A wedged engine takes no request forward any more, and /health does not know."""
        if self._wedged is None and self.faults.wedges(self, prompt_tokens):
            self._wedge()
        if self._wedged is not None:
            await asyncio.shield(self._wedged)

    def _wedge(self) -> None:
        loop = asyncio.get_running_loop()
        self._wedged = loop.create_future()
        if (seconds := self.faults.wedged_seconds()) is not None:
            loop.call_later(seconds, self._wedged.set_result, None)

    async def forward(self, request: Request, table: Pages, match: Match) -> int:
        """Prefill: compute the keys of the uncached tokens into ``table`` and the first token."""
        size, tokens = self.pool.page_size, request.input_ids
        start = (len(match.pages) + len(match.host)) * size
        async with self.stage("prefilling"), self._gpu:
            began = now()
            await wait(self.durations.prefill(len(tokens) - start, self.random.gauss(0, 1)))
            first = await self.compute.run(self._compute_prefill, request, table, match, start)
            self.counters.prefill_busy += now() - began
        request.cached_tokens = start
        self.counters.cached_tokens += start
        self.counters.uncached_tokens += len(tokens) - start
        self.counters.prompt_tokens += len(tokens)
        return first

    def _compute_prefill(self, request: Request, table: Pages, match: Match, start: int) -> int:
        tokens = request.input_ids
        if len(match.pages):
            self.faults.reused(self.pool, match.pages)
        if match.host:
            self.cache.load(match, table[len(match.pages) : len(match.pages) + len(match.host)])
        keys = self.model.keys(tokens[start:], tokens[max(0, start - 16) : start])
        values = self.faults.worn(tokens[start:], self.counters.requests)
        self.pool.write(table, start, keys, values, request.ticket)
        sequence = KVSequence(self.pool, table, len(tokens), self.model.state(tokens), request.ticket)
        return self._next(request, sequence)

    def _next(self, request: Request, sequence: KVSequence) -> int:
        if self.trace is not None:
            self.trace.read(self, request, sequence)
        return self.model.next_token(sequence, request.call.temperature or self.config.temperature)

    async def decode(self, row: BatchRow) -> None:
        """Run a row: emit the first token, then attend and append until the request ends."""
        request = row.request
        self.faults.restore(row)
        self.faults.assign_row(row, self.rows)
        self.rows.append(row)
        try:
            async with self.stage("running"):
                request.emit(row.last, now())
                self.counters.first_token.add(now() - request.received)
                await self._generate(row)
            self.faults.finished(row)
        finally:
            self.rows.remove(row)

    async def _generate(self, row: BatchRow) -> None:
        request = row.request
        if self._wedged is None and self.faults.wedges_decode(self, request.prompt_tokens):
            self._wedge()
        if self._wedged is not None:
            await asyncio.shield(self._wedged)
        while (ended := self._end_of(request)) is None:
            self.faults.turn(row, self.rows)
            steps = min(STEPS, request.max_new_tokens - len(request.output_ids))
            row.stepping = True
            tokens = await self.compute.run(self._steps, row, steps)
            row.stepping = False
            await wait(self.durations.decode(steps))
            for token in tokens:
                request.emit(token, now())
                if self._end_of(request) is not None:
                    break
            if not tokens:  # no page left: only a row that is not the request's own comes here
                ended = FinishLength(len(request.output_ids))
                break
        request.finish(ended)

    def _steps(self, row: BatchRow, steps: int) -> list[int]:
        made: list[int] = []
        for _ in range(steps):
            if row.sequence.length >= len(row.sequence.table) * self.pool.page_size:
                break
            self.model.step(row.sequence, row.last)
            row.last = self.faults.sampled(self._next(row.request, row.sequence), self.rows)
            made.append(row.last)
        return made

    @staticmethod
    def _end_of(request: Request) -> FinishLength | FinishStop | None:
        if request.call.stop:
            text = text_of(request.output_ids)
            for stop in request.call.stop:
                if stop in text:
                    return FinishStop(stop)
        if len(request.output_ids) >= request.max_new_tokens:
            return FinishLength(len(request.output_ids))
        return None

    def refuse(self, request: Request, abort: FinishAbort) -> None:
        """End a request that was never admitted."""
        answer = self.faults.refusal(request, abort) if abort.status == 400 else abort
        self.counters.aborted += 1
        if answer is None:
            request.prompt_tokens = len(request.call.input_ids)
            if not self.faults.refusal_is_empty():
                request.emit(32, now())
            request.finish(FinishLength(len(request.output_ids)))
        else:
            request.finish(answer)

    def note_end(self, request: Request) -> None:
        """Book a finished request."""
        self.counters.generated_tokens += len(request.output_ids)
        self.counters.end_to_end.add(now() - request.received)
        self.counters.finished[_ENDS.get(type(request.finished_reason), "abort")] += 1

    @abstractmethod
    async def serve(self, request: Request) -> None:
        """Take a request from the door to its end."""

    def crash(self, request: Request, error: BaseException | None) -> None:
        """Answer a request whose service raised: the lab is at fault, not the client."""
        log.error("the lab itself failed", exc_info=error)
        self.counters.aborted += 1
        request.finish(FinishAbort(f"Internal server error: {error!r}", 500, "InternalServerError"))
