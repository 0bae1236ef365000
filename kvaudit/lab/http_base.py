"""HTTP pieces that both flavours share: reading a body, parsing a prompt, waiting for a leg."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import numpy as np
import orjson
from starlette.requests import Request as HTTPRequest
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvaudit.lab.pool import Tokens
from kvaudit.lab.request import Refused, Request, encode

T = TypeVar("T")
LAB_HEADER = (b"x-kvaudit-lab", b"test target, not a serving engine")
VOCABULARY = 256


def json_response(document: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(document), status, media_type="application/json")


def sse(document: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(document) + b"\n\n"


DONE = b"data: [DONE]\n\n"


class EventStream(StreamingResponse):
    """Server-sent events; ``leave`` is called when the answer ends, however it ends, even when
    nobody has read the first frame."""

    def __init__(self, frames: AsyncIterator[bytes], leave: Callable[[], None] | None = None) -> None:
        super().__init__(frames, media_type="text/event-stream")
        self._leave = leave

    def leave(self) -> None:
        if self._leave is not None:
            self._leave()

    def on_leaving(self, more: Callable[[], None]) -> None:
        """Call ``more`` as well when the answer ends."""
        before = self._leave

        def both() -> None:
            if before is not None:
                before()
            more()

        self._leave = both

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.leave()


async def body_of(http: HTTPRequest) -> dict[str, Any]:
    """The JSON object in a request; Refused with status 400 when there is none."""
    try:
        body = orjson.loads(await http.body())
    except orjson.JSONDecodeError as error:
        raise Refused(f"Invalid JSON: {error}") from None
    if not isinstance(body, dict):
        raise Refused("The request body must be a JSON object")
    return body


def prompt_tokens(prompt: object) -> Tokens:
    """Token ids of a prompt: text (one byte is one token) or a list of ids; a batch of one is allowed."""
    if isinstance(prompt, str):
        return _not_empty(encode(prompt))
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (list, str)):
        return prompt_tokens(prompt[0])
    if isinstance(prompt, list) and set(map(type, prompt)) <= {int}:
        ids = np.array(prompt, np.int64) if prompt else np.empty(0, np.int64)
        wrong = ids[(ids < 0) | (ids >= VOCABULARY)]
        if len(wrong):
            raise Refused(f"Token id {int(wrong[0])} is out of vocabulary", param="prompt")
        return _not_empty(ids.astype(np.uint16))
    raise Refused("prompt must be a string or a list of token ids (one prompt per request)", param="prompt")


def _not_empty(tokens: Tokens) -> Tokens:
    if not len(tokens):
        raise Refused("You must pass at least one prompt token", param="prompt")
    return tokens


def chat_text(messages: object) -> str:
    """The chat template: a role tag before each message and nothing after the last, so that a
    question can end with the beginning of its answer."""
    if not isinstance(messages, list) or not messages:
        raise Refused("messages must be a non-empty list", param="messages")
    parts: list[str] = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Refused("each message needs a role", param="messages")
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        parts.append(f"<|{message['role']}|>{content or ''}")
    return "".join(parts)


def number(body: Mapping[str, Any], *names: str, default: int, least: int = 0) -> int:
    """The first given of the integer fields ``names``; Refused when it is no integer >= ``least``."""
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise Refused(f"{name} must be an integer of at least {least}, got {value!r}", param=name)
        return value
    return default


def temperature(body: Mapping[str, Any], default: float = 0.0) -> float:
    value = body.get("temperature")
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 2:
        raise Refused(f"temperature must be between 0 and 2, got {value!r}", param="temperature")
    return float(value)


def stops(body: Mapping[str, Any]) -> tuple[str, ...]:
    value = body.get("stop")
    given = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(stop for stop in given if isinstance(stop, str) and stop)


async def served(work: Coroutine[Any, Any, None], request: Request) -> None:
    """Run a request to its end; a cancelled wait cancels the work."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """``work``'s result, or None when the client went away first (then the work is cancelled)."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return doing.result() if doing.done() else None
    finally:
        for task in (doing, leaving):
            task.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)


class Header:
    """Puts one header on every response."""

    def __init__(self, application: ASGIApp, name: bytes, value: bytes) -> None:
        self.application, self.header = application, (name, value)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), self.header]}
            await send(message)

        await self.application(scope, receive, marked if scope["type"] == "http" else send)


class LabHeader(Header):
    """Says on every response that this is a test target."""

    def __init__(self, application: ASGIApp) -> None:
        super().__init__(application, *LAB_HEADER)


class BearerKey:
    """Asks for ``Authorization: Bearer KEY`` except where ``open_path`` says so (401
    ``{"error":"Unauthorized"}`` otherwise, as SGLang and vLLM answer)."""

    def __init__(self, application: ASGIApp, key_for: Callable[[str], str | None]) -> None:
        """``key_for(path)``: the key that the path needs, None or "" = open."""
        self.application, self.key_for = application, key_for

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] != "OPTIONS":
            key = self.key_for(scope["path"])
            if key and bearer(scope) != key:
                await json_response({"error": "Unauthorized"}, 401)(scope, receive, send)
                return
        await self.application(scope, receive, send)


def bearer(scope: Scope) -> str:
    """The bearer token of a request, "" when there is none."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if scheme.lower() == "bearer" else ""
    return ""


def openapi(title: str, paths: list[str]) -> dict[str, Any]:
    """The route list, as a client sees it in ``/openapi.json``."""
    posts = {
        "/generate",
        "/v1/completions",
        "/v1/chat/completions",
        "/tokenize",
        "/detokenize",
        "/v1/tokenize",
        "/v1/detokenize",
        "/invocations",
        "/reset_prefix_cache",
    }
    listed = {path: {"post" if path in posts else "get": {"summary": path.strip("/")}} for path in paths}
    return {"openapi": "3.1.0", "info": {"title": title, "version": "0.1.0"}, "paths": listed}


async def _not_found(http: HTTPRequest, _: Exception) -> Response:
    return json_response({"detail": "Not Found"}, 404)


async def _not_allowed(http: HTTPRequest, _: Exception) -> Response:
    return json_response({"detail": "Method Not Allowed"}, 405)


FASTAPI_ERRORS = {404: _not_found, 405: _not_allowed}
