"""Serves requests in the three roles: a prefill worker, a decode worker, and both in one (unified).

Each serves a request in the engine's order: door, queue, pages, forward pass, transfer or decoding. The prefill
node computes pages and sends them; the decode node reserves pages, waits for the done signal, and attends over
what it reserved.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np

from kvaudit.lab.clock import now
from kvaudit.lab.model import KVSequence
from kvaudit.lab.node import Node
from kvaudit.lab.pool import Pages
from kvaudit.lab.prefix_cache import Match
from kvaudit.lab.request import BatchRow, FinishAbort, FinishLength, Request
from kvaudit.lab.transfer import Handoff, Room, TransferFailed


async def serve_alone(node: Node, request: Request) -> None:
    """A request from door to end in one node and one pool."""
    if node.faults.unadmitted_reject(request) or request.to_finish is not None:
        assert request.to_finish is not None
        node.refuse(request, request.to_finish)
        return
    await node.wedge_if_due(request.prompt_tokens)
    need = node.pool.pages_for(len(request.input_ids) + request.max_new_tokens)
    async with node.stage("waiting"):
        match, fresh = await node.admit(request.input_ids, request.call.salt, need)
    table = np.concatenate([match.pages, fresh])
    computed = False
    try:
        first = await node.forward(request, table, match)
        computed = True
        row = BatchRow(
            request,
            KVSequence(
                node.pool,
                table,
                len(request.input_ids),
                node.model.state(request.input_ids),
                request.ticket,
            ),
            first,
        )
        await node.decode(row)
        node.note_end(request)
    finally:
        spare = table[len(match.pages) :].tolist()
        if computed or node.faults.publishes_unwritten():
            spare = node.cache.insert(request.input_ids, request.call.salt, table, match)
        node.cache.unlock(match)
        node.release(spare)


class UnifiedNode(Node):
    """Prefill and decode in one process and one pool. Never vulnerable to the rejection bug: the
    placeholder is computed alone and the abort is reported."""

    async def serve(self, request: Request) -> None:
        await serve_alone(self, request)


@dataclass(slots=True, eq=False)
class Loan:
    """The pages of a prompt on the prefill node, from reservation to return. They stay until the
    writer is done with them, whatever became of the client; a lease, where there is one, ends
    without asking whether somebody still reads."""

    node: Node
    request: Request
    match: Match
    table: Pages
    computed: bool = False
    writer: asyncio.Task[None] | None = None
    returned: bool = False

    def settle(self) -> None:
        """The request is over: return the pages now, or when the writer is done."""
        if self.writer is not None and not self.writer.done():
            self.writer.add_done_callback(lambda _: self._return(keep=True))
        else:
            self._return(keep=True)

    def expire(self) -> None:
        """The lease has ended; pages that nobody has read yet go back to the free list."""
        if self.writer is not None and not self.writer.done() and not self.returned:
            self.node.counters.expired_leases += 1
            self._return(keep=False)

    def _return(self, *, keep: bool) -> None:
        if self.returned:
            self.node.counters.reads_after_expiry += 1
            return
        self.returned = True
        spare = self.table[len(self.match.pages) :].tolist()
        if keep and (self.computed or self.node.faults.publishes_unwritten()):
            spare = self.node.cache.insert(
                self.request.input_ids, self.request.call.salt, self.table, self.match
            )
        self.node.cache.unlock(self.match)
        self.node.release(spare)


class PrefillNode(Node):
    """Computes the pages of a prompt and sends them to the decode node of the same room."""

    async def serve(self, request: Request) -> None:
        """From intake to the end of the transfer."""
        if request.call.room is None:  # vLLM does not enforce roles; SGLang refused it earlier
            await serve_alone(self, request)
            return
        room = self.fabric.room(request.call.room)
        if self.faults.unadmitted_reject(request):  # the door; before 0.5.21 it looked at finished() alone
            self._retire(request, room)
            return
        await self.wedge_if_due(len(request.call.input_ids))
        if not await self._bootstrap(request, room):
            return
        need = self.pool.pages_for(len(request.input_ids))
        try:
            async with self.stage("waiting"):
                match, fresh = await self.admit(request.input_ids, request.call.salt, need)
        except asyncio.CancelledError:
            self.fabric.refuse(room, "KVTransferError: prefill aborted", 500)
            raise
        loan = Loan(self, request, match, np.concatenate([match.pages, fresh]))
        try:
            first = await self.forward(request, loan.table, match)
            loan.computed = request.to_finish is None
            if self.faults.retire_aborted_result(request):
                self._retire(request, room)
                return
            if room.closed and self.faults.waits_for_writer():
                self.refuse(
                    request, FinishAbort(f"Decode left room {room.number}", 500, "InternalServerError")
                )
                return
            await self._send(request, room, loan, first)
            request.emit(first, now())
            # on success the result is FINISH_LENGTH unless an abort was already *applied*; one that
            # still waits in to_finish is overwritten here (0.5.19, prefill.py:929)
            request.finish(FinishLength(0))
            self.counters.first_token.add(now() - request.received)
            self.note_end(request)
        except asyncio.CancelledError:
            if loan.writer is None:
                self.fabric.refuse(room, "KVTransferError: prefill aborted", 500)
            raise
        finally:
            loan.settle()

    async def _send(self, request: Request, room: Room, loan: Loan, first: int) -> None:
        """Start the writer and wait for it. In a pull design the reader may come late, and the
        producer's lease may end before it does."""
        pages = self.faults.pages_to_send(loan.table, self.fabric.chunk_pages)
        state = tuple(self.model.state(request.input_ids))
        handoff = Handoff(len(pages), first, state, request.cached_tokens)
        late = self.faults.reader_delay(self.waiting) * self.durations.scale
        slowness, stall = self.faults.link_slowness(), self.faults.writer_stall() * self.durations.scale
        lost = self.faults.pages_lost(request, len(pages), self.pool.page_size)
        loan.writer = self.fabric.send(
            room, self.pool, pages, handoff, slowness=slowness, after=late, stall=stall, lost=lost
        )
        lease = self.faults.lease()
        if lease is not None:
            asyncio.get_running_loop().call_later(lease * self.durations.scale, loan.expire)
        async with self.stage("prefill_inflight"):
            await asyncio.shield(loan.writer)

    async def _bootstrap(self, request: Request, room: Room) -> bool:
        """Wait until the decode leg has reserved pages; False when it will not."""
        limit = self.config.waits
        async with self.stage("prefill_bootstrap"):
            await asyncio.wait({room.destination}, timeout=limit)
        if room.destination.done() and not room.destination.cancelled():
            return True
        self.counters.bootstrap_failed += 1
        why = (
            "was left by decode" if room.destination.done() else f"timed out after {limit}s in bootstrapping"
        )
        self.refuse(
            request, FinishAbort(f"Prefill bootstrap of room {room.number} {why}", 500, "InternalServerError")
        )
        return False

    def _retire(self, request: Request, room: Room) -> None:
        abort = request.to_finish
        assert abort is not None
        self.refuse(request, abort)
        if self.faults.tells_decode_of_refusal():
            answer = request.finished_reason
            told = answer if isinstance(answer, FinishAbort) else abort
            self.fabric.refuse(room, told.message, told.status)


class DecodeNode(Node):
    """Reserves pages for the whole prompt, waits for the transfer, and generates."""

    async def serve(self, request: Request) -> None:
        """From the reservation of pages to the last token."""
        if request.call.room is None:  # vLLM does not enforce roles; SGLang refused it earlier
            await serve_alone(self, request)
            return
        room = self.fabric.room(request.call.room)
        if self.faults.unadmitted_reject(request):
            assert request.to_finish is not None
            self.refuse(request, request.to_finish)
            self.fabric.close(room)
            return
        await self.wedge_if_due(len(request.call.input_ids))
        pages: Pages | None = None
        refused = False
        try:
            async with self.stage("decode_prealloc"):
                pages = await self.reserve(
                    self.pool.pages_for(len(request.input_ids) + request.max_new_tokens)
                )
            prompt_pages = pages[: self.pool.pages_for(len(request.input_ids))]
            self.fabric.register(room, self.pool, prompt_pages)
            async with self.stage("decode_transfer"):
                handoff = await self._bell(room)
            if not self.faults.count_is_right(handoff.pages, len(prompt_pages)):
                raise TransferFailed(
                    f"KV transfer incomplete: {handoff.pages} pages arrived, {len(prompt_pages)} were reserved"
                )
            request.cached_tokens = handoff.cached_tokens
            sequence = KVSequence(
                self.pool, pages, len(request.input_ids), list(handoff.state), request.ticket
            )
            await self.decode(BatchRow(request, sequence, handoff.first_token))
            self.counters.prompt_tokens += len(request.input_ids)
            self.note_end(request)
        except TransferFailed as failure:
            refused = True
            self.counters.transfer_failed += 1
            self.refuse(
                request,
                FinishAbort(
                    failure.message,
                    failure.status,
                    "BadRequestError" if failure.status == 400 else "InternalServerError",
                ),
            )
        finally:
            self.fabric.close(room)
            if pages is not None:
                self._give_back(room, self.faults.pages_freed_after_refusal(pages) if refused else pages)

    async def _bell(self, room: Room) -> Handoff:
        limit = self.config.waits
        try:
            async with asyncio.timeout(limit if not room.writing else None):
                return await asyncio.shield(room.handoff)
        except TimeoutError:
            raise TransferFailed(
                f"Decode transfer of room {room.number} timed out after {limit}s in KVPoll.WaitingForInput"
            ) from None

    def _give_back(self, room: Room, pages: Pages) -> None:
        """Free the pages; while the writer is still at work they are kept for it (deferred release,
        default since SGLang 0.5.21)."""
        if room.writing and self.faults.waits_for_writer():
            task = asyncio.ensure_future(room.writer_done.wait())
            task.add_done_callback(lambda _: self.release(pages))
        else:
            self.release(pages)
