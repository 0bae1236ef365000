"""The three roles: a prefill worker, a decode worker, and both in one (unified).

Each serves a request in the engine's order: door, queue, pages, forward pass, transfer or decoding.
The prefill node computes pages and sends them; the decode node reserves pages, waits for the bell,
and attends over what it reserved.
"""

from __future__ import annotations

import asyncio

import numpy as np

from kvaudit.lab.clock import Compute, now
from kvaudit.lab.config import LabConfig
from kvaudit.lab.faults.base import Faults
from kvaudit.lab.model import KVSequence
from kvaudit.lab.node import Node, Row
from kvaudit.lab.pool import Pages
from kvaudit.lab.prefix_cache import Match
from kvaudit.lab.request import FinishAbort, FinishLength, Request
from kvaudit.lab.transfer import Fabric, Handoff, Room, TransferFailed


class UnifiedNode(Node):
    """Prefill and decode in one process and one pool. Never vulnerable to the rejection bug: the
    placeholder is computed alone and the abort is reported."""

    async def serve(self, request: Request) -> None:
        if self.faults.unadmitted_reject(request) or request.to_finish is not None:
            assert request.to_finish is not None
            self.refuse(request, request.to_finish)
            return
        await self.wedge_if_due(request.prompt_tokens)
        match = self.cache.match(request.input_ids, request.call.salt)
        table: Pages | None = None
        try:
            need = self.pool.pages_for(len(request.input_ids) + request.max_new_tokens)
            async with self.stage("waiting"):
                fresh = await self.reserve(need - len(match.pages))
            table = np.concatenate([match.pages, fresh])
            first = await self.forward(request, table, match)
            row = Row(
                request,
                KVSequence(
                    self.pool,
                    table,
                    len(request.input_ids),
                    self.model.state(request.input_ids),
                    request.ticket,
                ),
                first,
            )
            async with self.stage("running"):
                await self.decode(row)
            self.note_end(request)
        finally:
            self.cache.unlock(match)
            if table is not None:
                spare = table[len(match.pages) :].tolist()
                if request.finished():
                    spare = self.cache.insert(request.input_ids, request.call.salt, table, match)
                self.release(spare)


class PrefillNode(Node):
    """Computes the pages of a prompt and sends them to the decode node of the same room."""

    async def serve(self, request: Request) -> None:
        room = self.fabric.room(request.call.room or 0)
        if self.faults.unadmitted_reject(request):  # the door; before 0.5.21 it looked at finished() alone
            self._retire(request, room)
            return
        await self.wedge_if_due(len(request.call.input_ids))
        if not await self._bootstrap(request, room):
            return
        match = self.cache.match(request.input_ids, request.call.salt)
        table: Pages | None = None
        writer: asyncio.Task[None] | None = None
        try:
            async with self.stage("waiting"):
                fresh = await self.reserve(self.pool.pages_for(len(request.input_ids)) - len(match.pages))
            table = np.concatenate([match.pages, fresh])
            first = await self.forward(request, table, match)
            if self.faults.retire_aborted_result(request):
                self._retire(request, room)
                return
            pages = self.faults.pages_to_send(table)
            handoff = Handoff(
                len(pages), first, tuple(self.model.state(request.input_ids)), request.cached_tokens
            )
            writer = await self._hand_over(request, room, pages, handoff)
            async with self.stage("prefill_inflight"):
                await asyncio.shield(writer)
            request.emit(first, now())
            # on success the result is FINISH_LENGTH unless an abort was already *applied*; one that
            # still waits in to_finish is overwritten here (0.5.19, prefill.py:929)
            request.finish(FinishLength(0))
            self.meters.first_token.append(now() - request.received)
            self.note_end(request)
        except asyncio.CancelledError:
            if not room.handoff.done() and writer is None:
                self.fabric.refuse(room, "KVTransferError: prefill aborted", 500)
            raise
        finally:
            if table is None:
                self.cache.unlock(match)
            else:
                self._give_back_after(writer, request, table, match)

    async def _bootstrap(self, request: Request, room: Room) -> bool:
        """Wait until the decode leg has reserved pages; False when it will not."""
        limit = self.config.waiting_timeout
        async with self.stage("prefill_bootstrap"):
            await asyncio.wait({room.destination}, timeout=limit)
        if room.destination.done() and not room.destination.cancelled():
            return True
        self.meters.bootstrap_failed += 1
        why = (
            "was left by decode" if room.destination.done() else f"timed out after {limit}s in bootstrapping"
        )
        self.refuse(
            request, FinishAbort(f"Prefill bootstrap of room {room.number} {why}", 500, "InternalServerError")
        )
        return False

    async def _hand_over(
        self, request: Request, room: Room, pages: Pages, handoff: Handoff
    ) -> asyncio.Task[None]:
        """Start the writer, or, in a pull design, let the reader come for the pages."""
        return self.fabric.send(room, self.pool, pages, handoff, self.faults.link_slowness())

    def _retire(self, request: Request, room: Room) -> None:
        abort = request.to_finish
        assert abort is not None
        self.refuse(request, abort)
        if self.faults.tells_decode_of_refusal():
            answer = request.finished_reason
            status = answer.status if isinstance(answer, FinishAbort) else 400
            self.fabric.refuse(room, abort.message, status)

    def _give_back_after(
        self, writer: asyncio.Task[None] | None, request: Request, table: Pages, match: Match
    ) -> None:
        """The pages stay until the writer is done with them, whatever became of the client."""

        def give_back(_: object = None) -> None:
            self.cache.unlock(match)
            whole = request.to_finish is None
            if whole:
                spare = self.cache.insert(request.input_ids, request.call.salt, table, match)
            else:
                spare = table[len(match.pages) :].tolist()
            self.release(spare)

        if writer is not None and not writer.done():
            writer.add_done_callback(give_back)
        else:
            give_back()


class DecodeNode(Node):
    """Reserves pages for the whole prompt, waits for the transfer, and generates."""

    def __init__(
        self, config: LabConfig, role: str, faults: Faults, fabric: Fabric, compute: Compute, seed: int = 0
    ) -> None:
        super().__init__(config, role, faults, fabric, compute, seed)
        self.rows: list[Row] = []
        self.served = 0

    async def serve(self, request: Request) -> None:
        room = self.fabric.room(request.call.room or 0)
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
            row = Row(request, sequence, handoff.first_token)
            self.faults.restore(self, row)
            self.faults.assign_row(self, row, self.rows)
            self.rows.append(row)
            try:
                async with self.stage("running"):
                    await self.decode(row)
            finally:
                self.rows.remove(row)
            self.meters.prompt_tokens += len(request.input_ids)
            self.note_end(request)
            self.served += 1
        except TransferFailed as failure:
            refused = True
            self.meters.transfer_failed += 1
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
        limit = self.config.waiting_timeout
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
