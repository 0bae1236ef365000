"""Faults of the rejection path: a prompt that is too long, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from kvaudit.lab.config import ENLARGED_POOL, LabConfig
from kvaudit.lab.faults.base import Faults, Nature
from kvaudit.lab.limits import NodeLimits
from kvaudit.lab.pool import Pages
from kvaudit.lab.request import FinishAbort, Request


class Healthy(Faults):
    """A correct engine whose prefill pool was enlarged: pool >= 1.25 x context on every node."""

    name = "healthy"
    nature = Nature.HEALTHY

    @classmethod
    def configure(cls, config: LabConfig) -> LabConfig:
        return replace(config, prefill_pool=config.prefill_pool or ENLARGED_POOL[config.scale])


class StalePages(Faults):
    """The incident (sglang #30233, fixed by #36988 in 0.5.20): intake leaves the rejection in
    ``to_finish``, both queues look at ``finished()``, the one-token placeholder is prefilled, one
    page is sent, and decode attends over all the pages that it reserved."""

    name = "stale_pages"
    nature = Nature.LEAKS
    reports: ClassVar[tuple[str, ...]] = ("sglang#30233", "sglang#34208", "KVA-001")
    flavours = ("sglang",)

    @classmethod
    def configure(cls, config: LabConfig) -> LabConfig:
        return replace(config, engine_version=config.engine_version or "0.5.19")

    def unadmitted_reject(self, request: Request) -> bool:
        return request.finished()

    def retire_aborted_result(self, request: Request) -> bool:
        return False

    def count_is_right(self, arrived: int, reserved: int) -> bool:
        return True


class Fixed0520(StalePages):
    """SGLang 0.5.20 (#36988): prefill drops the aborted result and answers 400; decode is not told
    and waits out its time-out (300 s there, 2 s here), then answers 500."""

    name = "fixed_0_5_20"
    nature = Nature.HIDES
    reports = ("sglang#36988", "KVA-001")

    @classmethod
    def configure(cls, config: LabConfig) -> LabConfig:
        return replace(config, engine_version=config.engine_version or "0.5.20")

    def retire_aborted_result(self, request: Request) -> bool:
        return request.to_finish is not None

    def tells_decode_of_refusal(self) -> bool:
        return False


class Fixed0521(Faults):
    """SGLang 0.5.21 (#38935): both doors ask `is_unadmitted_reject`; a rejected request enters no
    queue and both legs answer 400."""

    name = "fixed_0_5_21"
    nature = Nature.HEALTHY
    reports = ("sglang#38935",)
    flavours = ("sglang",)

    @classmethod
    def configure(cls, config: LabConfig) -> LabConfig:
        return replace(config, engine_version=config.engine_version or "0.5.21")


class Status200Length(Faults):
    """sglang #33507 (KVA-003): a pending abort is overwritten with FINISH_LENGTH, and the client gets
    HTTP 200 with one token and no error."""

    name = "status_200_length"
    nature = Nature.HIDES
    reports = ("sglang#33507", "KVA-003")

    def refusal(self, request: Request, abort: FinishAbort) -> FinishAbort | None:
        return None


class Empty200(Status200Length):
    """TensorRT-LLM #15018 (KVA-036): HTTP 200 with zero tokens."""

    name = "empty_200"
    nature = Nature.HIDES
    reports = ("TensorRT-LLM#15018", "KVA-036")

    def refusal_is_empty(self) -> bool:
        return True


class Reject500(Faults):
    """TensorRT-LLM #8813 and sglang #22716 (KVA-025): the request that should be refused brings the
    worker down; the client sees an internal error."""

    name = "reject_500"
    nature = Nature.OPEN
    reports = ("vllm#46240", "KVA-025")

    def refusal(self, request: Request, abort: FinishAbort) -> FinishAbort | None:
        return FinishAbort("Internal server error", 500, "InternalServerError")


class SseErrorIn200(Faults):
    """vLLM with a failed load (vllm #52234, reference vllm.md section 3): a streamed refusal is HTTP
    200 with an error frame inside; a client that looks at the status calls it a success."""

    name = "sse_error_in_200"
    nature = Nature.HEALTHY
    reports = ("vllm#52234",)

    def streams_every_refusal(self) -> bool:
        return True


class PoolStranded(Faults):
    """vllm #41269 and dynamo #7489 (KVA-024, KVA-040): pages of a rejected request are never freed;
    the pool shrinks with every refusal."""

    name = "pool_stranded"
    nature = Nature.HIDES
    reports = ("vllm#41269", "dynamo#7489", "KVA-024", "KVA-040")
    STRANDED = 16

    def pages_freed_after_refusal(self, pages: Pages) -> Pages:
        return pages[self.STRANDED :]


class WedgeAtLimit(Faults):
    """vllm #35541: a prompt that the context allows and the pool cannot hold waits at the head of
    the queue for ever; everybody behind it hangs, ``/health`` stays 200."""

    name = "wedge_at_limit"
    nature = Nature.HIDES
    reports: ClassVar[tuple[str, ...]] = ("vllm#35541", "vllm#27181")

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._stuck = False

    def wedges(self, node: NodeLimits, prompt_tokens: int) -> bool:
        vllm = node.config.flavour == "vllm"
        limit = node.pool.capacity - node.pool.page_size + 1 if vllm else node.max_req_input_len
        self._stuck = self._stuck or prompt_tokens >= limit
        return self._stuck

    def unadmitted_reject(self, request: Request) -> bool:
        return request.finished()


class Wedge(WedgeAtLimit):
    """A real vLLM 0.27.1 whose pool is below its context (vllm #41069; vllm.md 0): already the longest
    prompt that its own limits allow hangs it for ever. Nobody is answered any more, ``/health`` stays
    200, and the gauges show nothing running or waiting."""

    name = "wedge"
    nature = Nature.HIDES
    reports: ClassVar[tuple[str, ...]] = ("vllm#41069", "vllm#35541")

    def wedges(self, node: NodeLimits, prompt_tokens: int) -> bool:
        self._stuck = self._stuck or self._over(node, prompt_tokens)
        return self._stuck

    @staticmethod
    def _over(node: NodeLimits, prompt_tokens: int) -> bool:
        return prompt_tokens >= node.max_req_input_len - 1


class WedgeDecode(Wedge):
    """vllm #27181: one of the longest prompts is prefilled and its first token leaves, then nothing that decodes
    goes on: streams stay open without a word, ``/health`` stays 200."""

    name = "wedge_decode"
    nature = Nature.HIDES
    reports = ("vllm#27181",)

    def wedges(self, node: NodeLimits, prompt_tokens: int) -> bool:
        return False

    def wedges_decode(self, node: NodeLimits, prompt_tokens: int) -> bool:
        return super().wedges(node, prompt_tokens)

    @staticmethod
    def _over(node: NodeLimits, prompt_tokens: int) -> bool:
        # Decode's pool is larger than prefill's, and it is prefill that refuses.
        prefill = node.config.pool("unified" if node.config.unified else "prefill")
        return prompt_tokens >= min(prefill, node.context) - 256

    def unadmitted_reject(self, request: Request) -> bool:
        return Faults.unadmitted_reject(self, request)


class WedgeForMinutes(Wedge):
    """The same at first, but a watchdog sets the engine going again after two minutes (sglang
    ``--watchdog-timeout``): it was slow, and it was not stopped."""

    name = "wedge_for_minutes"
    nature = Nature.HEALTHY
    reports = ("sglang#22716",)

    def wedged_seconds(self) -> float | None:
        return 120.0


class AutoTruncate(Faults):
    """``--allow-auto-truncate`` on a pair with unequal limits (reference sglang.md 4.5): prefill
    shortens the prompt to its own limit, decode does not, and attends over pages that never came."""

    name = "auto_truncate"
    nature = Nature.LEAKS
    reports = ("sglang#30233",)
    flavours = ("sglang",)

    @classmethod
    def configure(cls, config: LabConfig) -> LabConfig:
        return replace(config, allow_auto_truncate=True)

    def count_is_right(self, arrived: int, reserved: int) -> bool:
        return True
