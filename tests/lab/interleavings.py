"""Random lives of a lab deployment: arrivals, lengths, shared beginnings, cancels and time-outs, on the
virtual clock; and a witness that looks at every slot that attention reads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kvaudit.lab.clock import Durations, run_virtual
from kvaudit.lab.config import LabConfig
from kvaudit.lab.deployment import Deployment
from kvaudit.lab.model import KVSequence
from kvaudit.lab.node import Node
from kvaudit.lab.request import Request

TINY = LabConfig(
    page=4,
    context=192,
    prefill_pool=128,
    decode_pool=288,
    waiting_timeout=0.06,
    chunk_pages=4,
    timing=Durations(a=2e-3, transfer=5e-4, decode_token=1e-3),
)
"""A deployment so small that its pools run full: 32 and 72 pages of 4 tokens, context above both limits'."""


@dataclass
class Foreign:
    """A read of slots that the reader neither wrote nor found in its own tenant's cache."""

    node: str
    reader: int
    writers: set[int]
    slots: int


@dataclass
class Witness:
    """Watches every read. Own slots are fine; so are slots of the same tenant's cached prefix, when
    they hold exactly the reader's own prompt."""

    deployment: Deployment
    reads: int = 0
    foreign: list[Foreign] = field(default_factory=list)

    def read(self, node: Node, request: Request, sequence: KVSequence) -> None:
        self.reads += 1
        writers = sequence.pool.writers_of(sequence.table, sequence.length)
        others = np.flatnonzero(writers != request.ticket)
        if not len(others):
            return
        tenant_of = self.deployment.tenant_of
        tokens = sequence.pool.tokens[sequence.table].reshape(-1)
        prompt = request.input_ids
        same_text = others[-1] < len(prompt) and bool(
            (tokens[: others[-1] + 1] == prompt[: others[-1] + 1]).all()
        )
        ours = tenant_of.get(request.ticket)
        same_tenant = all(tenant_of.get(int(writer)) == ours for writer in np.unique(writers[others]))
        if not (same_text and same_tenant):
            found = {int(writer) for writer in np.unique(writers[others])}
            self.foreign.append(Foreign(node.role, request.ticket, found, len(others)))


def prompt(random_: random.Random, longest: int) -> list[int]:
    """Token ids; half of the prompts begin like some others (a system prompt), each ends its own way."""
    length = random_.choice([1, 3, 4, 5, 16, 40, 90, longest - 1, longest, random_.randint(1, longest + 40)])
    shared = random_.choice([0, 0, 8, 37])
    start = [(7 * i + shared) % 90 + 33 for i in range(shared)]
    return (start + [random_.randint(33, 122) for _ in range(length)])[: max(1, length)]


async def live(
    seed: int, config: LabConfig, faults: Sequence[str], requests: int, cancels: float = 0.3
) -> tuple[Witness, list[Any], Deployment]:
    """One deployment, ``requests`` requests of two tenants with overlapping lives."""
    random_ = random.Random(seed)
    deployment = Deployment(replace(config, seed=seed), faults)
    witness = Witness(deployment)
    deployment.watch(witness)
    longest = deployment.nodes[0].max_req_input_len
    answers: list[Any] = []

    async def one() -> None:
        await asyncio.sleep(random_.uniform(0, requests * 0.004))
        body = {
            "prompt": prompt(random_, longest),
            "max_tokens": random_.choice([0, 1, 2, 9, 24]),
            "stream": random_.random() < 0.2,
        }
        tenant = random_.choice(["tenant-a", "tenant-b"])
        asking = asyncio.ensure_future(_ask(deployment, tenant, body))
        if random_.random() < cancels:  # the client goes away
            await asyncio.wait(
                {asking},
                timeout=random_.choice(
                    [0.0, *(random_.uniform(0, most) for most in (0.01, 0.03, 0.03, 0.1))]
                ),
            )
            asking.cancel()
        answers.extend(await asyncio.gather(asking, return_exceptions=True))

    await asyncio.gather(*(one() for _ in range(requests)))
    await asyncio.sleep(5)  # writers at work and deferred releases come to their end
    await deployment.stop()
    return witness, answers, deployment


async def _ask(deployment: Deployment, tenant: str, body: dict[str, Any]) -> Any:
    answer = await deployment.router.route(tenant, "/v1/completions", body)
    frames = getattr(answer, "body_iterator", None)
    if frames is None:
        return answer.status_code, bytes(answer.body)
    try:
        return answer.status_code, b"".join([frame async for frame in frames])
    finally:
        answer.leave()


def run(
    seed: int,
    config: LabConfig = TINY,
    faults: Sequence[str] = (),
    requests: int = 24,
    cancels: float = 0.3,
) -> tuple[Witness, list[Any], Deployment]:
    """`live` on a virtual clock."""
    return run_virtual(live(seed, config, faults, requests, cancels))
