"""A response cache over all keys for temperature 0, as gateways have it: B receives A's very answer, with its id, and is
told so in a header. litellm#29955. The other caches keep quiet, take chat alone, or compare beginnings.
"""

from __future__ import annotations

import orjson
from starlette.responses import Response
from starlette.types import ASGIApp

from tests.redteam.answers import answer_of
from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import Gateway
from tests.redteam.wanted import Check


class ResponseCache(Gateway):
    chat_alone = False
    beginning: int | None = None  # characters of the prompt that are compared
    header = "x-cache"

    def __init__(self, labs, seed) -> None:
        super().__init__(labs, seed)
        self._answers: dict[bytes, tuple[str, Response]] = {}

    async def generation(self, asked: Asked) -> ASGIApp | None:
        if asked.body.get("temperature") or (self.chat_alone and not asked.chat):
            return None
        same = asked.text[: self.beginning] if self.beginning else orjson.dumps(asked.body).decode()
        key = orjson.dumps([asked.path, asked.streamed, same])
        if key not in self._answers:
            answer = await answer_of(self.copying(asked), asked.path, asked.body, asked.key)
            if answer.status_code == 200:
                self._answers[key] = asked.key, answer
            return answer
        first, answer = self._answers[key]
        if first != asked.key:
            self.happened(asked)
        headers = {self.header: "HIT"} if self.header else None
        return Response(answer.body, 200, headers, answer.media_type)


def _case(name: str, **parameters: object) -> Case:
    wanted = (Check("prefix", "fail"),)
    return Case(name, "leak", wanted, ResponseCache, parameters, checks=("prefix",), prompt_tokens=None)


CASES = (
    _case("cache_real"),
    _case("cache_real/quiet", header=""),
    _case("cache_real/chat", chat_alone=True),
    _case("cache_real/first_200", beginning=200),
)
