"""What a gateway in front of the engine has in hand: a tenant's request, and ways to answer it itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.responses import Response

from kvaudit.lab import http_base as base
from kvaudit.lab.request import text_of

Send = Callable[[dict[str, Any]], Awaitable[Response]]
"""Gives a body to the engine, on the path and as the tenant of the request."""

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPTS = ("prompt", "input_ids", "text", "messages")
"""Where a body holds its prompt."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A generation request as the gateway got it."""

    tenant: str
    path: str
    body: dict[str, Any]

    @property
    def chat(self) -> bool:
        return self.path == CHAT

    @property
    def streamed(self) -> bool:
        return self.body.get("stream") is True

    @property
    def room(self) -> int:
        """Tokens that the answer may have."""
        sampling = self.body.get("sampling_params")
        given = {**self.body, **(sampling if isinstance(sampling, dict) else {})}
        return base.number(given, "max_completion_tokens", "max_tokens", "max_new_tokens", default=16)

    def with_room(self, tokens: int) -> dict[str, Any]:
        """The body with another room for the answer."""
        body = {name: value for name, value in self.body.items() if name != "max_completion_tokens"}
        if "sampling_params" in body:
            return body | {"sampling_params": {**body["sampling_params"], "max_new_tokens": tokens}}
        return body | {"max_tokens": tokens}

    def text(self) -> str:
        """The prompt as text."""
        if self.chat:
            return base.chat_text(self.body.get("messages"))
        given = next((self.body[name] for name in PROMPTS if self.body.get(name)), "")
        return given if isinstance(given, str) else text_of(base.prompt_tokens(given).tolist())


@dataclass(slots=True)
class Said:
    """An answer's text and what goes with it. ``message``: fields of a chat message, or of a choice."""

    text: str
    finish: str
    tokens: int
    message: dict[str, Any]


async def retold(
    asked: Asked, send: Send, change: Callable[[Said], None], *, body: dict[str, Any] | None = None
) -> Response:
    """Ask the engine without a stream, let ``change`` work on what it said, and answer in the form that was asked
    for. An answer that is no success goes on as it is."""
    answer = await send({**(asked.body if body is None else body), "stream": False})
    if answer.status_code != 200:
        return answer
    document = orjson.loads(bytes(answer.body))
    if "choices" not in document:
        _change_native(document, change)
        frames = [document]
    else:
        frames = _changed(asked, document, change)
    if not asked.streamed:
        return base.json_response(document)
    return base.EventStream(_events(frames))


def _change_native(document: dict[str, Any], change: Callable[[Said], None]) -> None:
    """SGLang's own ``/generate``."""
    meta = document["meta_info"]
    said = Said(document["text"], meta["finish_reason"]["type"], meta["completion_tokens"], {})
    change(said)
    document["text"], document["output_ids"] = said.text, []
    meta["finish_reason"], meta["completion_tokens"] = {"type": said.finish}, said.tokens


def _changed(asked: Asked, document: dict[str, Any], change: Callable[[Said], None]) -> list[dict[str, Any]]:
    """Changes an OpenAI answer in place; returns it as the frames of a stream."""
    (choice,), usage = document["choices"], document["usage"]
    message = choice["message"] if asked.chat else choice
    name = "content" if asked.chat else "text"
    said = Said(message[name], choice["finish_reason"], usage["completion_tokens"], {})
    change(said)
    message.update({name: said.text, **said.message})
    choice["finish_reason"] = said.finish
    usage |= {"completion_tokens": said.tokens, "total_tokens": usage["prompt_tokens"] + said.tokens}
    head = {key: document[key] for key in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk" if asked.chat else "text_completion"
    piece = {name: said.text, **said.message}
    content = {"delta": piece} if asked.chat else piece
    empty: dict[str, Any] = {"delta": {}} if asked.chat else {"text": ""}
    return [
        {**head, "choices": [{"index": 0, **content, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, **empty, "finish_reason": said.finish}]},
        {**head, "choices": [], "usage": usage},
    ]


async def _events(frames: list[dict[str, Any]]) -> AsyncIterator[bytes]:
    for frame in frames:
        yield base.sse(frame)
    yield base.DONE
