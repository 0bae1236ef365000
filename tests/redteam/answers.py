"""Makes answers: an engine's with another text in it, one that no engine gave, an error."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import orjson
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive

from kvaudit.lab.clock import wall
from tests.redteam.asked import GENERATE, Asked
from tests.redteam.editing import Document, spoken, sse

PIECE = 16  # characters of a frame


class Saying:
    """Puts ``text`` in place of the generated one. ``beside`` goes into the message or delta (of completions: into
    the choice) that holds it, ``choice`` and ``top`` into the choice and the document around."""

    def __init__(
        self,
        text: str,
        *,
        finish: str = "stop",
        beside: Mapping[str, Any] | None = None,
        choice: Mapping[str, Any] | None = None,
        top: Mapping[str, Any] | None = None,
        content: Any = None,
        tokens: int | None = None,
    ) -> None:
        self.text, self.finish = text, finish
        self._beside, self._choice, self._top = dict(beside or {}), dict(choice or {}), dict(top or {})
        self._content = content  # in place of the text, where it is no string
        self._tokens = max(1, len(text)) if tokens is None else tokens
        self._said = False

    def change(self, document: Document) -> Sequence[Document]:
        if usage := document.get("usage"):
            usage |= {
                "completion_tokens": self._tokens,
                "total_tokens": usage["prompt_tokens"] + self._tokens,
            }
        if "meta_info" in document:
            document |= {"text": self.text}
            document["meta_info"]["completion_tokens"] = self._tokens
            return [document | self._top]
        choices = document.get("choices") or []
        if not choices:
            return [document | self._top]
        choice = choices[0]
        if isinstance(choice.get("message"), dict):
            choice["message"] |= {"content": self._given} | self._beside
        elif "text" in choice and "usage" in document and document["usage"]:
            choice |= {"text": self._given} | self._beside
        else:
            return self._frames(document, choice)
        choice |= {"finish_reason": self.finish} | self._choice
        return [document | self._top]

    @property
    def _given(self) -> Any:
        return self.text if self._content is None else self._content

    def _frames(self, document: Document, choice: Document) -> Sequence[Document]:
        ends, given = choice.get("finish_reason"), any(holder.get(name) for holder, name in spoken(document))
        made: list[Document] = []
        if not self._said and (ends or given):
            self._said = True
            pieces = [self.text[at : at + PIECE] for at in range(0, len(self.text), PIECE)]
            made = [
                self._frame(document, choice, piece, number) for number, piece in enumerate(pieces or [""])
            ]
            if self._content is not None:
                made = [self._frame(document, choice, self._content, 0)]
        elif not given and not ends:
            return [document]
        if ends:
            for holder, name in spoken(document):
                holder[name] = ""
            made.append(document | {"choices": [choice | {"finish_reason": self.finish}]})
        return made

    def _frame(self, document: Document, choice: Document, piece: Any, number: int) -> Document:
        beside = self._beside if number == 0 else {}
        said = {"delta": {"content": piece} | beside} if "delta" in choice else {"text": piece} | beside
        around = self._choice if number == 0 else {}
        top = self._top if number == 0 else {}
        return document | {"choices": [choice | said | {"finish_reason": None} | around]} | top


def error(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An error in SGLang's OpenAI shape."""
    document = {"object": "error", "message": message, "type": "BadRequest", "param": None, "code": status}
    return JSONResponse(document, status, headers)


def too_long(tokens: int) -> JSONResponse:
    return error(400, f"The input ({tokens} tokens) is longer than the model's context length (8192 tokens).")


def answered(asked: Asked, text: str, finish: str = "stop") -> ASGIApp:
    """An answer that no engine gave."""
    usage = {
        "prompt_tokens": asked.tokens,
        "completion_tokens": len(text),
        "total_tokens": asked.tokens + len(text),
    }
    counted = {"usage": usage | {"prompt_tokens_details": {"cached_tokens": 0}}}
    head = {"id": uuid4().hex, "object": "chat.completion", "created": int(wall()), "model": "lab-copier"}
    choice: Document = {"index": 0, "logprobs": None, "finish_reason": finish}
    if asked.path == GENERATE:
        meta = {"id": head["id"], "finish_reason": {"type": finish}, **counted["usage"], "cached_tokens": 0}
        documents = [{"text": text, "meta_info": meta}]
    elif asked.streamed:
        said = {"delta": {"content": text}} if asked.chat else {"text": text}
        documents = [head | {"choices": [choice | said], "usage": None}, head | {"choices": []} | counted]
    else:
        said = {"message": {"role": "assistant", "content": text}} if asked.chat else {"text": text}
        documents = [head | {"choices": [choice | said]} | counted]
    if not asked.streamed:
        return JSONResponse(documents[0])
    frames = b"".join(sse(document) for document in documents) + b"data: [DONE]\n\n"
    return Response(frames, media_type="text/event-stream")


async def answer_of(application: ASGIApp, path: str, body: Any, key: str) -> Response:
    """The answer to one request, whole."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"authorization", b"Bearer " + key.encode()), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 2),
        "server": ("127.0.0.1", 80),
    }
    status, said, media = 0, b"", ""

    async def stays() -> Message:
        return await asyncio.Future()

    async def send(message: Message) -> None:
        nonlocal status, said, media
        status, said = message.get("status", status), said + message.get("body", b"")
        for name, value in message.get("headers", ()):
            media = value.decode() if name == b"content-type" else media

    await application(scope, replayed(body, stays), send)
    return Response(said, status, media_type=media)


def replayed(body: Any, receive: Receive) -> Receive:
    """Gives ``body``, then what the client does next (it leaves)."""
    left: list[Message] = [{"type": "http.request", "body": orjson.dumps(body), "more_body": False}]

    async def again() -> Message:
        return left.pop() if left else await receive()

    return again
