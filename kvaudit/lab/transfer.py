"""Transfers KV pages from a prefill to a decode node: rooms, counts and a done signal.

A *room* is where the two legs of one request meet. Decode reserves pages and registers them (bootstrap);
prefill, once it has computed its pages, writes them into the registered ones in chunks, like an RDMA writer
that neither side can call back (writes complete in no promised order; here the last comes first), then posts
the number of pages sent, the first token and the state, and gives the done signal. The writer runs on its own:
a client that goes away does not stop it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container
from dataclasses import dataclass, field

from kvaudit.lab.clock import Compute, Durations, wait
from kvaudit.lab.pool import KVPool, Pages


class TransferFailed(Exception):
    """The room will never deliver; ``status`` is what the decode leg answers."""

    def __init__(self, message: str, status: int = 500) -> None:
        super().__init__(message)
        self.message, self.status = message, status


@dataclass(frozen=True, slots=True)
class Handoff:
    """What arrives beside the pages: how many were sent, the first token, the model's state, and
    how many tokens the prefill found in its cache."""

    pages: int
    first_token: int
    state: tuple[int, ...]
    cached_tokens: int


@dataclass(slots=True)
class Destination:
    """Pages that the decode node reserved for a prompt."""

    pool: KVPool
    pages: Pages


@dataclass(slots=True, eq=False)
class Room:
    """The meeting place of one request's two legs."""

    number: int
    destination: asyncio.Future[Destination]
    handoff: asyncio.Future[Handoff]
    writer_done: asyncio.Event = field(default_factory=asyncio.Event)
    writing: bool = False
    closed: bool = False


class Fabric:
    """All rooms of one deployment, and the writers at work."""

    def __init__(self, compute: Compute, durations: Durations, chunk_pages: int) -> None:
        self._rooms: dict[int, Room] = {}
        self._writers: set[asyncio.Task[None]] = set()
        self._compute = compute
        self.durations, self.chunk_pages = durations, chunk_pages
        self.failed = self.transferred = 0

    def room(self, number: int) -> Room:
        """The room with this number; the leg that comes first opens it."""
        if number not in self._rooms:
            loop = asyncio.get_running_loop()
            self._rooms[number] = Room(number, loop.create_future(), loop.create_future())
        return self._rooms[number]

    def close(self, room: Room) -> None:
        """The decode leg leaves; later words find an empty room."""
        room.closed = True
        if self._rooms.get(room.number) is room:
            del self._rooms[room.number]
        for promise in (room.destination, room.handoff):
            if not promise.done():
                promise.cancel()
            elif not promise.cancelled():
                promise.exception()  # looked at: nobody else will

    def register(self, room: Room, pool: KVPool, pages: Pages) -> None:
        """Bootstrap, decode side: these pages wait for the prompt."""
        if not room.destination.done():
            room.destination.set_result(Destination(pool, pages))

    def refuse(self, room: Room, message: str, status: int) -> None:
        """Prefill tells decode that nothing will come. Engines before the fix never did."""
        self.failed += 1
        if not room.handoff.done():
            room.handoff.set_exception(TransferFailed(message, status))

    def send(
        self,
        room: Room,
        source: KVPool,
        pages: Pages,
        handoff: Handoff,
        *,
        slowness: float = 1.0,
        after: float = 0.0,
        stall: float = 0.0,
        lost: Container[int] = (),
    ) -> asyncio.Task[None]:
        """Start the writer; the task ends when the last page is written and the done signal is given.
        ``slowness`` stretches the link, ``after`` (seconds) is how late it begins, ``stall`` how long each
        write is held up once the reader has left (retransmission), ``lost`` the numbers of pages that do not arrive."""
        room.writing = True
        task = asyncio.create_task(self._write(room, source, pages, handoff, slowness, after, stall, lost))
        self._writers.add(task)
        task.add_done_callback(self._writers.discard)
        return task

    async def _write(
        self,
        room: Room,
        source: KVPool,
        pages: Pages,
        handoff: Handoff,
        slowness: float,
        after: float,
        stall: float,
        lost: Container[int],
    ) -> None:
        try:
            target = room.destination.result()
            if after:
                await wait(after)
            for at in reversed(range(0, len(pages), self.chunk_pages)):
                chunk = pages[at : at + self.chunk_pages]
                await wait(self.durations.send(len(chunk) * source.page_size) * slowness)
                if room.closed and stall:
                    await wait(stall)
                arrives = [number for number in range(at, at + len(chunk)) if number not in lost]
                await self._compute.run(target.pool.copy_in, source, pages[arrives], target.pages[arrives])
            if not room.handoff.done():
                room.handoff.set_result(handoff)
            self.transferred += 1
        finally:
            room.writing = False
            room.writer_done.set()

    async def stop(self) -> None:
        """Cancel the writers at work (the process ends)."""
        for task in list(self._writers):
            task.cancel()
        await asyncio.gather(*self._writers, return_exceptions=True)
