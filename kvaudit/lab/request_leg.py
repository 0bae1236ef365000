"""Serves one leg of a request on a node: the request, its task, and its text as it grows."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator
from types import TracebackType

from kvaudit.lab.node import Node
from kvaudit.lab.request import Call, Request


class RequestLeg:
    """A leg under way. Leaving the context cancels what is still running: the client went away."""

    def __init__(self, node: Node, request: Request) -> None:
        self.node, self.request = node, request
        self.task = asyncio.ensure_future(node.serve(request))
        self.task.add_done_callback(self._crashed)

    def _crashed(self, task: asyncio.Task[None]) -> None:
        """A bug of the lab itself must not leave a client waiting."""
        if not task.cancelled() and task.exception() is not None:
            self.node.crash(self.request, task.exception())

    async def __aenter__(self) -> RequestLeg:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def cancel(self) -> None:
        if not self.request.finished():
            self.task.cancel()

    async def ended(self) -> None:
        """Wait for the end of the request (the node may tidy up after it)."""
        async for _ in self.request.progress():
            pass

    async def pieces(self) -> AsyncIterator[str]:
        """New text whenever there is some; a character that is split over tokens waits for its end."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        sent = 0
        async for count in self.request.progress():
            fresh = bytes(token for token in self.request.output_ids[sent:count] if token < 256)
            sent = count
            text = decoder.decode(fresh, final=self.request.finished())
            if text:
                yield text


def start(node: Node, call: Call) -> RequestLeg:
    """Intake and, when accepted, service; raises Refused."""
    return RequestLeg(node, node.intake(call))
