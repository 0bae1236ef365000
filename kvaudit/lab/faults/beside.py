"""Faults that leave the text of an answer right: what somebody else sent comes back beside it."""

from __future__ import annotations

from starlette.responses import Response

from kvaudit.lab.faults.base import Faults, Nature
from kvaudit.lab.gateway import Asked, Send
from kvaudit.lab.request import Call, text_of

EXCERPT = slice(200, 420)
"""Tokens of a prompt that stay in the buffer."""


class _SharedBuffer(Faults):
    """A buffer of the process that holds a piece of the prompt before: the next request finds it there."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._before: dict[int, str] = {}  # ticket -> the excerpt that the request before it left
        self._last = self._previous = ""

    def received(self, call: Call) -> None:
        if call.ticket in self._before or len(call.input_ids) <= EXCERPT.start:
            return  # the other leg of the same request, or too short to leave anything
        self._before[call.ticket] = self._previous = self._last
        self._last = " ".join(text_of(call.input_ids[EXCERPT].tolist()).split())
        while len(self._before) > 1_000:
            del self._before[next(iter(self._before))]


class HeaderLeak(Faults):
    """A debugging header of the gateway names the prompt that was in its buffer. No public report names it; it
    stands for every part of an answer that is not its text."""

    name = "header_leak"
    nature = Nature.LEAKS

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._last = ""

    async def at_gateway(self, asked: Asked, send: Send) -> Response:
        before, self._last = self._last, " ".join(asked.text()[EXCERPT].split())
        answer = await super().at_gateway(asked, send)
        if before:
            answer.headers["x-upstream-debug"] = before.encode("ascii", "replace").decode()
        return answer


class LogprobsLeak(_SharedBuffer):
    """Logprobs are read from a row that another request left: the text is right, the tokens beside it are a
    stranger's. No public report names it."""

    name = "logprobs_leak"
    nature = Nature.LEAKS

    def logprobs(self, call: Call) -> object:
        words = self._before.get(call.ticket, "").split()
        if not words:
            return None
        return {"tokens": [f" {word}" for word in words], "token_logprobs": [0.0] * len(words)}


class ErrorLeak(_SharedBuffer):
    """An error quotes the buffer of the process, where the prompt of the request before still stands. No public
    report names it; error bodies are kept and shown in clear more easily than answers."""

    name = "error_leak"
    nature = Nature.LEAKS

    def error_text(self, message: str) -> str:
        return f"{message} Prompt: {self._previous}" if self._previous else message
