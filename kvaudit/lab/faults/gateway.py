"""Faults of what stands in front of the engine: empty answers, streams mixed up, and a replica on nobody's list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from starlette.responses import Response

from kvaudit.lab.faults.base import Faults, Nature
from kvaudit.lab.gateway import CHAT, PROMPTS, Asked, Said, Send, retold
from kvaudit.lab.http_base import EventStream


class EmptySome(Faults):
    """dynamo #12000 (known issues 1.3.0, over EFA): HTTP 200, no content, no completion token, for one in five
    ordinary requests."""

    name = "empty_some"
    nature = Nature.HIDES
    reports: ClassVar[tuple[str, ...]] = ("dynamo#12000",)
    RATE = 0.2

    async def at_gateway(self, asked: Asked, send: Send) -> Response:
        if self.random.random() >= self.RATE:
            return await super().at_gateway(asked, send)
        return await retold(asked, send, _emptied, body=asked.with_room(1))


class EmptyAll(EmptySome):
    """The same for every request."""

    name = "empty_all"
    nature = Nature.HIDES
    reports = ("dynamo#12000",)
    RATE = 1.0


def _emptied(said: Said) -> None:
    said.text, said.tokens, said.finish = "", 0, "stop"


class StreamMix(Faults):
    """9router #3164: a streamed and an unstreamed request at the same time get each other's answer. Two of one
    kind are kept apart, so a load that only streams never sees it."""

    name = "stream_mix"
    nature = Nature.LEAKS
    reports = ("9router#3164",)

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._under_way: list[Asked] = []

    async def at_gateway(self, asked: Asked, send: Send) -> Response:
        other = next((each for each in self._under_way if self._mixed_up(each, asked)), asked)
        self._under_way.append(asked)
        body = {name: value for name, value in asked.body.items() if name not in PROMPTS}
        body |= {name: other.body[name] for name in PROMPTS if name in other.body}
        answer: Response | None = None
        try:
            answer = await super().at_gateway(Asked(asked.tenant, asked.path, body), send)
        finally:
            if not isinstance(answer, EventStream):
                self._under_way.remove(asked)
        if isinstance(answer, EventStream):
            answer.on_leaving(lambda: self._ended(asked))
        return answer

    def _ended(self, asked: Asked) -> None:
        if asked in self._under_way:
            self._under_way.remove(asked)

    @staticmethod
    def _mixed_up(one: Asked, other: Asked) -> bool:
        return one.streamed is not other.streamed and one.path == other.path


class BadReplica(Faults):
    """The autoscaler's sixteenth replica is a smaller card with an older build, the incident's (sglang #30233),
    and on nobody's list: the nodes that are read are in order, and one answer of sixteen is not."""

    name = "bad_replica"
    nature = Nature.LEAKS
    reports = ("sglang#30233", "KVA-001")
    flavours = ("sglang",)
    stray = ("stale_pages",)
    SHARE = 1 / 16

    def strays(self, path: str, body: Mapping[str, Any]) -> bool:
        return self.random.random() < self.SHARE


class ChatOnly(BadReplica):
    """Chat goes to workers of another release than completions, the incident's (sglang #30233): whoever asks by
    one route learns nothing of the other."""

    name = "chat_only"
    nature = Nature.LEAKS
    reports = ("sglang#30233", "KVA-001")

    def strays(self, path: str, body: Mapping[str, Any]) -> bool:
        return path == CHAT


class UnstreamedOnly(BadReplica):
    """Requests that are not streamed go to workers of another release than streams."""

    name = "unstreamed_only"
    nature = Nature.LEAKS
    reports = ("sglang#30233", "KVA-001")

    def strays(self, path: str, body: Mapping[str, Any]) -> bool:
        return body.get("stream") is not True
