"""Healthy targets that do not look like it: nobody is harmed by them, and no check may say *fail*."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import ClassVar

import orjson
from starlette.responses import Response

from kvaudit.lab.clock import now
from kvaudit.lab.config import LabConfig
from kvaudit.lab.faults.base import Nature
from kvaudit.lab.faults.rejection import Healthy
from kvaudit.lab.gateway import Asked, Said, Send, retold
from kvaudit.lab.http_base import json_response


class Restart(Healthy):
    """An operator restarts the deployment while it is audited: for a minute and a half the gateway answers 503
    with Retry-After, then the same engine goes on with an empty cache."""

    name = "restart"
    nature = Nature.HEALTHY
    AT, SECONDS = 60, 90.0  # requests served before, and how long it takes

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._until = 0.0

    def next_pools(self, served: int, config: LabConfig) -> tuple[int, int] | None:
        if served != self.AT:
            return None
        self._until = now() + self.SECONDS
        return config.pool("prefill"), config.pool("decode")

    async def at_gateway(self, asked: Asked, send: Send) -> Response:
        if now() < self._until:
            error = {"message": "no healthy upstream: workers are starting", "code": 503}
            return _refused(error, 503, 30)
        return await super().at_gateway(asked, send)


class RateLimit(Healthy):
    """A tenant may send so many requests a minute; what is more gets 429 with Retry-After, every word of it
    true."""

    name = "rate_limit"
    nature = Nature.HEALTHY
    PER_MINUTE = 60

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._sent: dict[str, deque[float]] = defaultdict(deque)

    async def at_gateway(self, asked: Asked, send: Send) -> Response:
        sent = self._sent[asked.tenant]
        while sent and now() - sent[0] >= 60:
            sent.popleft()
        if len(sent) >= self.PER_MINUTE:
            wait = int(60 - (now() - sent[0])) + 1
            message = f"Rate limit reached, try again in {wait}s"
            return _refused({"message": message, "type": "rate_limit_error", "code": 429}, 429, wait)
        sent.append(now())
        return await super().at_gateway(asked, send)


class Guardrail(Healthy):
    """A guard takes long repetitive instructions for an injection: HTTP 200, ``content_filter``, and a canned
    sentence, whatever the engine would have said."""

    name = "guardrail"
    nature = Nature.HEALTHY
    SUSPECT = "Every answer must consist of"
    FROM = 2_000  # tokens of a prompt

    async def at_gateway(self, asked: Asked, send: Send) -> Response:
        text = asked.text()
        if len(text) < self.FROM or self.SUSPECT not in text:
            return await super().at_gateway(asked, send)
        return await retold(asked, send, self._canned, body=asked.with_room(1))

    @staticmethod
    def _canned(said: Said) -> None:
        said.text, said.finish, said.tokens = (
            "I'm sorry, but I can't assist with that request.",
            "content_filter",
            12,
        )


class ReasoningModel(Healthy):
    """A reasoning model behind a gateway that offers chat alone. It reads every prompt right and thinks first:
    what room is left after its thoughts is the answer's."""

    name = "reasoning_model"
    nature = Nature.HEALTHY
    THOUGHTS = (
        "Okay, the user has pasted a long list of numbered records, and each of them repeats the same phrase. There is "
        "an instruction in the records about every answer, but that is part of the data. At the very end there is an "
        "unfinished line, and the word that belongs there was given twice right before it."
    )

    async def at_gateway(self, asked: Asked, send: Send) -> Response:
        if not asked.chat:
            return json_response({"detail": "Not Found"}, 404)
        left = asked.room - len(self.THOUGHTS)
        thoughts = self.THOUGHTS[: asked.room]

        def thinking(said: Said) -> None:
            if left < 1:
                said.text, said.finish, said.tokens = "", "length", 0
            said.tokens += len(thoughts)
            said.message["reasoning_content"] = thoughts

        return await retold(asked, send, thinking, body=asked.with_room(max(1, left)))


class SystemPrompt(Healthy):
    """The product puts one public system prompt before every tenant's own, and its pages are shared by design;
    what comes after is kept apart. The usage counts it, and reports it as cached."""

    name = "system_prompt"
    nature = Nature.HEALTHY
    SYSTEM = (
        "You are the assistant of a public library. Be brief, be kind, quote your sources, and never give legal or "
        "medical advice. Today's opening hours: 9-18. "
    )[:150]

    def shared_tokens(self) -> int:
        return len(self.SYSTEM)

    async def at_gateway(self, asked: Asked, send: Send) -> Response:
        body = dict(asked.body)
        if asked.chat:
            body["messages"] = [{"role": "system", "content": self.SYSTEM}, *body.get("messages", [])]
        for name in ("prompt", "input_ids", "text"):
            if isinstance(given := body.get(name), str):
                body[name] = self.SYSTEM + given
            elif given:
                body[name] = [*self.SYSTEM.encode(), *given]
        return await super().at_gateway(Asked(asked.tenant, asked.path, body), send)


class ShortSystemPrompt(SystemPrompt):
    """The same with three pages of it."""

    name = "short_system_prompt"
    nature = Nature.HEALTHY
    SYSTEM = SystemPrompt.SYSTEM[:48]


class ShortMemory(Healthy):
    """A model that is served with a longer context than it was trained for: beyond that it babbles. Nothing of
    anybody else is in its answers."""

    name = "short_memory"
    nature = Nature.HEALTHY
    TRAINED = 3_000  # tokens
    BABBLE: ClassVar[tuple[str, ...]] = (" the", " the the", " of", ",", " 1", "\n", " and")

    async def at_gateway(self, asked: Asked, send: Send) -> Response:
        if len(asked.text()) <= self.TRAINED:
            return await super().at_gateway(asked, send)
        return await retold(asked, send, self._babbles)

    def _babbles(self, said: Said) -> None:
        said.text = "".join(self.random.choices(self.BABBLE, k=said.tokens))[: said.tokens]


class ContentParts(Healthy):
    """A gateway that offers chat alone and gives content as a list of parts (Mistral's and others')."""

    name = "content_parts"
    nature = Nature.HEALTHY

    async def at_gateway(self, asked: Asked, send: Send) -> Response:
        if not asked.chat:
            return json_response({"detail": "Not Found"}, 404)

        def in_parts(said: Said) -> None:
            said.message["content"] = [{"type": "text", "text": said.text}]

        return await retold(asked, send, in_parts)


def _refused(error: dict[str, object], status: int, wait: int) -> Response:
    return Response(
        orjson.dumps({"error": error}),
        status,
        headers={"retry-after": str(wait)},
        media_type="application/json",
    )
