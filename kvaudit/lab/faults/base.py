"""Defines the places where engines went wrong, each with the right behaviour; a fault overrides one or two.

`Faults` is a correct engine. Every method is called from the place in the engine where a real bug
sat, and a fault is a subclass that does there what the buggy release did. Several faults combine
by inheritance.
"""

from __future__ import annotations

import random
from collections.abc import Container, Mapping, Sequence
from enum import Enum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar

from kvaudit.lab.limits import NodeLimits
from kvaudit.lab.request import BatchRow, Call, FinishAbort, Request

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from kvaudit.lab.config import LabConfig
    from kvaudit.lab.gateway import Asked, Send
    from kvaudit.lab.pool import KVPool, Pages, Tokens


class Nature(Enum):
    """What a fault is to those who are served. Of a healthy one no check may say *fail*."""

    LEAKS = "leaks"  # what one request brought, or that it was brought, reaches another
    HIDES = "hides an error"  # a refusal, a loss or a broken engine looks like success, or like nothing
    HEALTHY = "healthy oddity"  # nobody is harmed, and it is not as the textbook has it
    OPEN = "open trouble"  # it fails, changes or stands open where everybody can see it


class Faults:
    """A correct engine: `none`."""

    name: ClassVar[str] = "none"
    nature: ClassVar[Nature] = Nature.HEALTHY
    reports: ClassVar[tuple[str, ...]] = ()
    """Public reports it stands for (issue numbers, advisories)."""
    flavours: ClassVar[tuple[str, ...]] = ("sglang", "vllm")
    disaggregated: ClassVar[bool] = False
    """It lies in the transfer from prefill to decode: a unified engine has none."""
    stray: ClassVar[tuple[str, ...]] = ()
    """Faults of a replica that stands behind the entry and on nobody's list; () = there is none."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)

    @classmethod
    def configure(cls, config: LabConfig) -> LabConfig:
        """Settings under which the report was made; what the command line sets wins."""
        return config

    # --- intake and admission (prefill, decode) ---
    def received(self, call: Call) -> None:
        """A node has taken a request in."""

    def unadmitted_reject(self, request: Request) -> bool:
        """At the door of both queues: was this request rejected at intake? (SGLang 0.5.21)"""
        return request.finished() or request.to_finish is not None

    def retire_aborted_result(self, request: Request) -> bool:
        """After the forward pass: drop the result of an aborted request (SGLang 0.5.20)."""
        return request.to_finish is not None

    def tells_decode_of_refusal(self) -> bool:
        """Whether prefill's refusal reaches the decode leg of the same request."""
        return True

    def wedges(self, node: NodeLimits, prompt_tokens: int) -> bool:
        """Whether this prompt blocks the engine."""
        return False

    def wedges_decode(self, node: NodeLimits, prompt_tokens: int) -> bool:
        """Whether decoding after this prompt, and after every other, goes no further than its first token."""
        return False

    def wedged_seconds(self) -> float | None:
        """After how long a blocked engine goes on; None = never."""
        return None

    def refusal(self, request: Request, abort: FinishAbort) -> FinishAbort | None:
        """How a refusal is answered; None = as a success (the abort is lost)."""
        return abort

    def error_text(self, message: str) -> str:
        """The sentence of an error as it goes out."""
        return message

    def refusal_is_empty(self) -> bool:
        """A lost refusal answers with no token at all instead of one."""
        return False

    def streams_every_refusal(self) -> bool:
        """A refused stream is HTTP 200 with an error frame, even where the status could say it."""
        return False

    def pages_freed_after_refusal(self, pages: Pages) -> Pages:
        """Of the pages reserved for a refused request, those that are given back."""
        return pages

    # --- transfer ---
    def pages_to_send(self, pages: Pages, chunk: int) -> Pages:
        """The pages of a prompt that the writer sends, ``chunk`` at a time."""
        return pages

    def pages_lost(self, request: Request, pages: int, page_size: int) -> Container[int]:
        """Of a prompt's pages that the writer sends, the numbers of those that never arrive although they
        are counted."""
        return ()

    def count_is_right(self, arrived: int, reserved: int) -> bool:
        """Decode, when the transfer is reported done: did as many pages arrive as were reserved? No release
        read so far compares (sglang #38704 proposes it); the correct engine here does."""
        return arrived == reserved

    def waits_for_writer(self) -> bool:
        """Decode, at an abort: keep the pages until the writer is done with them."""
        return True

    def link_slowness(self) -> float:
        return 1.0

    def writer_stall(self) -> float:
        """Seconds by which each remaining write is held up once the reader has left."""
        return 0.0

    def lease(self) -> float | None:
        """Seconds after which the producer frees pages that nobody read; None = it waits."""
        return None

    def reader_delay(self, waiting: int) -> float:
        """Seconds until the reader comes, with ``waiting`` transfers before it."""
        return 0.0

    # --- decode ---
    def assign_row(self, row: BatchRow, rows: Sequence[BatchRow]) -> None:
        """A request joins the batch: which pages its row points to."""

    def restore(self, row: BatchRow) -> None:
        """Before the first step: whether an earlier session's state is put in place."""

    def turn(self, row: BatchRow, rows: Sequence[BatchRow]) -> None:
        """Before each turn of decoding: which pages the row points to now."""

    def sampled(self, token: int, rows: Sequence[BatchRow]) -> int:
        """A row's token as it leaves the sampler of the batch ``rows``."""
        return token

    def logprobs(self, call: Call) -> Any:
        """What stands beside the text of an answer as its logprobs."""
        return None

    def finished(self, row: BatchRow) -> None:
        """A row has ended: whether its session is kept."""

    def worn(self, tokens: Tokens, served: int) -> Tokens:
        """The values as they arrive in the pool after ``served`` requests."""
        return tokens

    # --- prefix cache ---
    def page_hash(self, previous: bytes, page: bytes) -> bytes:
        return strong_hash(previous, page)

    def cache_namespace(self, salt: str) -> str:
        """What separates prompts in the device tier."""
        return salt

    def tier_namespace(self, salt: str) -> str:
        """What separates prompts in the second tier."""
        return salt

    def shared_tokens(self) -> int:
        """Tokens at the beginning of every prompt that are everybody's: they are cached before the salt."""
        return 0

    def publishes_unwritten(self) -> bool:
        """Whether a prompt's pages can be found in the cache although its prefill never came to its end."""
        return False

    def reused(self, pool: KVPool, pages: Pages) -> None:
        """Pages of the device tier go into another prompt's table."""

    def restored(self, pool: KVPool, pages: Pages) -> None:
        """Pages have come back from the second tier."""

    def copies_before_reuse(self) -> bool:
        """Whether an evicted page is in the second tier before somebody else writes over it."""
        return True

    # --- router ---
    async def at_gateway(self, asked: Asked, send: Send) -> Response:
        """What the gateway does with a tenant's request; ``send`` gives a body to the engine."""
        return await send(asked.body)

    def strays(self, path: str, body: Mapping[str, Any]) -> bool:
        """Whether a request goes to the replica that is on nobody's list."""
        return False

    def router_salt(self, tenant: str, salt: str) -> str:
        """The salt that the router sends on: its own name for the tenant first, whatever the client says."""
        return f"{tenant}:{salt}"

    def router_requires_key(self) -> bool:
        return True

    # --- disclosure ---
    def disclose(self, path: str, document: Any) -> Any:
        """The body of a discovery endpoint as it leaves the server."""
        return document

    def metrics(self, text: str) -> str:
        """The exposition text of /metrics as it leaves the server."""
        return text

    # --- transport and life ---
    def wrap(self, application: ASGIApp) -> ASGIApp:
        """The HTTP application of a node or router, as the network shows it."""
        return application

    def next_pools(self, served: int, config: LabConfig) -> tuple[int, int] | None:
        """Pools after a restart that is due now, or None."""
        return None


def strong_hash(previous: bytes, page: bytes) -> bytes:
    """Chained page hash that does not collide."""
    return blake2b(page, digest_size=12, key=previous[:64]).digest()
