"""A gateway in front of the lab, as an ASGI application: passes everything on, until a case steps in."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvaudit.lab.clock import now
from kvaudit.lab.http_base import bearer
from tests.redteam.asked import COMPLETIONS, GENERATION, Asked
from tests.redteam.editing import Document, Edited, spoken
from tests.redteam.texts import copied

LIMIT = 8_186
"""Tokens of the shortest prompt that the lab refuses at its usual size."""

PIECE = 16  # characters of a frame


class Gateway:
    """Everything passes to the first of ``labs``, which reads every prompt, but whose healthy answers are made by
    `copied`: the lab's attention gives the same ones at five times the cost. A case overrides `generation`, and tells `happened` whenever it
    did what it is about: a case that never did proves nothing."""

    def __init__(self, labs: Sequence[ASGIApp], seed: int) -> None:
        self.labs = labs
        self.random = random.Random(seed)
        self.requests = 0
        self.prompt_tokens = 0
        self.lengths: list[int] = []  # of the prompts where it happened
        self.secrets: list[str] = []  # what was given away
        self._last: dict[str, str] = {}  # key -> its last prompt, the latest first

    def connected(self) -> ASGIApp:
        """What answers on a new connection."""
        return self

    async def generation(self, asked: Asked) -> ASGIApp | None:
        """What answers; None = the first lab, as ever."""
        return None

    async def other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Everything that is no generation."""
        await self.labs[0](scope, receive, send)

    def others_last(self, asked: Asked) -> str:
        """The last prompt of another tenant, "" when there was none; notes this one."""
        other = next((text for key, text in self._last.items() if key != asked.key), "")
        self._last.pop(asked.key, None)
        self._last = {asked.key: asked.text} | self._last
        return other

    def happened(self, asked: Asked) -> None:
        """It did now what the case is about."""
        self.lengths.append(asked.tokens)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in GENERATION:
            await self.other(scope, receive, send)
            return
        body = orjson.loads(await _whole(receive))
        self.requests += 1
        asked = Asked(scope["path"], body, bearer(scope), self.requests, now())
        self.prompt_tokens += asked.tokens
        answer = await self.generation(asked)
        if answer is None:
            answer = self.copying(asked)
        await answer(scope, _replayed(asked.body, receive), send)

    def copying(self, asked: Asked) -> ASGIApp:
        """The first lab's answer out of the prompt as it stands, quickly: see `copied`."""
        return self.saying(asked, copied(asked.text, asked.room), finish="length")

    def saying(self, asked: Asked, text: str, **fields: Any) -> Edited:
        """The lab's answer with another text. The prompt is read as usual, one token is generated, and what the
        engine counts and refuses stays true. ``fields``: see `Saying`."""
        saying = Saying(text[: asked.room], **fields)
        asked.body = asked.with_room(1)
        return Edited(self.labs[0], saying.change)

    async def ask(self, lab: ASGIApp, key: str, prompt: str, tokens: int = 4) -> None:
        """A request of somebody else, waited for and forgotten."""
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0}
        await answer_of(lab, COMPLETIONS, body, key)


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


async def answer_of(application: ASGIApp, path: str, body: Any, key: str) -> tuple[int, bytes]:
    """Status and body of one request."""
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
    status, said = 0, b""

    async def stays() -> Message:
        return await asyncio.Future()

    async def send(message: Message) -> None:
        nonlocal status, said
        status, said = message.get("status", status), said + message.get("body", b"")

    await application(scope, _replayed(body, stays), send)
    return status, said


async def _whole(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _replayed(body: Any, receive: Receive) -> Receive:
    """Gives ``body``, then what the client does next (it leaves)."""
    left: list[Message] = [{"type": "http.request", "body": orjson.dumps(body), "more_body": False}]

    async def again() -> Message:
        return left.pop() if left else await receive()

    return again
