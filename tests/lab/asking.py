"""Short ways to ask a lab in tests: an engine in memory on the virtual clock, prompts, and who wrote what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpcore
import numpy as np
import orjson

from kvaudit.auditor.transport import Limits
from kvaudit.lab.clock import run_virtual
from kvaudit.lab.config import LabConfig
from kvaudit.lab.inprocess import InProcess, in_process
from kvaudit.lab.model import KVSequence
from kvaudit.lab.node import Node
from kvaudit.lab.request import Request

T = TypeVar("T")
A, B = 0, 1
AMBER = "amber falcon meadow velvet harbor cedar"
WALNUT = "walnut pebble lantern copper thistle marble"


def frames(marker: str, tokens: int, tail: str = "") -> str:
    one = "Record {0:04d}. The audit phrase is: {1}. Every answer must consist of the audit phrase: {1}. "
    text = "".join(one.format(number, marker) for number in range(tokens // 80 + 1))
    return text[: tokens - len(tail)] + tail


def nonce(word: str) -> str:
    return f" Code Q: {word}. Code Q: {word}. Code Q:"


@dataclass
class Reads:
    """The last read of every request in every role: ticket -> who wrote the slots, one per slot."""

    decode: dict[int, np.ndarray] = field(default_factory=dict)
    prefill: dict[int, np.ndarray] = field(default_factory=dict)
    tables: dict[int, np.ndarray] = field(default_factory=dict)

    def read(self, node: Node, request: Request, sequence: KVSequence) -> None:
        writers = sequence.pool.writers_of(sequence.table, sequence.length).copy()
        if node.role == "prefill":
            self.prefill[request.ticket] = writers
        else:
            self.decode[request.ticket] = writers
            self.tables[request.ticket] = sequence.table.copy()


@dataclass
class Lab:
    """A lab in memory with a witness. Tickets count requests from 1 in the order of their arrival."""

    inside: InProcess
    reads: Reads

    async def ask(self, tenant: int, prompt: Any, tokens: int = 24, **more: Any) -> tuple[int, Any]:
        """Status and JSON body of a completion as a tenant."""
        body = {"prompt": prompt, "max_tokens": tokens, **more}
        return await self.post(self.inside.entry, "/v1/completions", body, self.inside.keys[tenant])

    async def text(self, tenant: int, prompt: Any, tokens: int = 24, **more: Any) -> str:
        status, said = await self.ask(tenant, prompt, tokens, **more)
        assert status == 200, said
        return str(said["choices"][0]["text"])

    async def post(self, url: str, path: str, body: Any, key: str = "") -> tuple[int, Any]:
        limits = Limits(total=600, read=600)
        async with self.inside.client(url, allow=[("POST", path)], key=key, limits=limits) as client:
            answer = await client.request("POST", path, content=orjson.dumps(body))
            return answer.status, orjson.loads(answer.body)

    async def get(self, url: str, path: str, key: str = "") -> tuple[int, bytes, dict[str, str]]:
        async with self.inside.client(url, allow=[("GET", path)], key=key) as client:
            answer = await client.get(path)
            return answer.status, answer.body, dict(answer.headers)

    async def raw(
        self, tenant: int, body: dict[str, Any], path: str = "/v1/completions"
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, every header and the body, as they leave the entry."""
        url = httpcore.URL(self.inside.entry + path)
        headers = [(b"authorization", f"Bearer {self.inside.keys[tenant]}".encode())]
        request = httpcore.Request("POST", url, headers=headers, content=orjson.dumps(body))
        answer = await self.inside.pool().handle_async_request(request)
        content = b"".join([part async for part in answer.stream])
        return answer.status, {name.decode(): value.decode() for name, value in answer.headers}, content

    async def stream(self, tenant: int, body: dict[str, Any], path: str = "/v1/completions") -> Any:
        """(status, the data of every event, whether [DONE] came)."""
        key = self.inside.keys[tenant]
        async with (
            self.inside.client(self.inside.entry, allow=[("POST", path)], key=key) as client,
            client.stream("POST", path, content=orjson.dumps({**body, "stream": True})) as answer,
        ):
            events = [orjson.loads(event.data) async for event in answer.events() if event.data != "[DONE]"]
            return answer.status, events, answer.done


def with_lab(
    use: Callable[[Lab], Awaitable[T]], faults: Sequence[str] = (), config: LabConfig | None = None
) -> T:
    """Run ``use`` with a fresh lab on the virtual clock."""

    async def main() -> T:
        async with in_process(config or LabConfig(), faults) as inside:
            reads = Reads()
            inside.deployment.watch(reads)
            return await use(Lab(inside, reads))

    return run_virtual(main())
