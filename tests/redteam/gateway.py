"""A gateway in front of the lab, as an ASGI application: passes everything on, until a case steps in."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from kvaudit.lab.clock import now
from kvaudit.lab.http_base import bearer
from tests.redteam.answers import Saying, answer_of, replayed
from tests.redteam.asked import COMPLETIONS, GENERATION, Asked
from tests.redteam.editing import Edited
from tests.redteam.texts import copied

LIMIT = 8_186
"""Tokens of the shortest prompt that the lab refuses at its usual size."""


class Gateway:
    """Everything passes to the first of ``labs``, which reads every prompt, but whose healthy answers are made by
    `copied`: the lab's attention gives the same ones at five times the cost. A case overrides `generation`, and tells `happened` whenever it
    did what it is about: a case that never did proves nothing."""

    characters_per_token = 1  # of generated text, as the lab counts

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
        await answer(scope, replayed(asked.body, receive), send)

    def copying(self, asked: Asked, lab: ASGIApp | None = None) -> Edited:
        """The lab's answer out of the prompt as it stands, quickly: see `copied`."""
        return self.saying(asked, copied(asked.text, asked.room), lab, finish="length")

    def saying(self, asked: Asked, text: str, lab: ASGIApp | None = None, **fields: Any) -> Edited:
        """The lab's answer with another text. The prompt is read as usual, one token is generated, and what the
        engine counts and refuses stays true. ``fields``: see `Saying`."""
        saying = Saying(text[: asked.room * self.characters_per_token], **fields)
        asked.body = asked.with_room(1)
        return Edited(lab or self.labs[0], saying.change)

    async def ask(self, lab: ASGIApp, key: str, prompt: str, tokens: int = 4) -> None:
        """A request of somebody else, waited for and forgotten."""
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0}
        await answer_of(lab, COMPLETIONS, body, key)


class Direct(Gateway):
    """The first lab itself, attention and all."""

    async def generation(self, asked: Asked) -> ASGIApp | None:
        return self.labs[0]


async def _whole(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)
