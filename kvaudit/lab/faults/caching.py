"""Faults of caches: prefixes that cross tenants, hits that never were or come back wrong, and answers kept at the
gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np
import orjson
from starlette.responses import Response

from kvaudit.lab.config import LabConfig, LabTenant
from kvaudit.lab.faults.base import Faults, Nature, strong_hash
from kvaudit.lab.gateway import Asked, Send
from kvaudit.lab.http_base import EventStream
from kvaudit.lab.pool import KVPool, Pages


class PhantomCache(Faults):
    """vllm #12621 (KVA-015, CVE-2025-25183) and #44701 (KVA-026): hashes of first pages collide; a prompt
    that was never sent before is served with another prompt's first page and reports cached tokens."""

    name = "phantom_cache"
    nature = Nature.LEAKS
    reports: ClassVar[tuple[str, ...]] = ("vllm#12621", "vllm#44701", "CVE-2025-25183", "KVA-015", "KVA-026")

    def page_hash(self, previous: bytes, page: bytes) -> bytes:
        if len(previous) == 12:  # a later page: its chain is sound
            return strong_hash(previous, page)
        return b"weak-hash-0" + bytes([blake2b(page, digest_size=1).digest()[0] & 0x0F])


class SharedPrefix(Faults):
    """vllm #17045 (KVA-016, CVE-2025-46570): no salt is set, the prefix cache is one for all tenants;
    cached tokens and a faster first token tell B what A has sent."""

    name = "shared_prefix"
    nature = Nature.LEAKS
    reports = ("vllm#17045", "CVE-2025-46570", "KVA-016")

    def router_salt(self, tenant: str, salt: str) -> str:
        return salt


class SaltIgnored(Faults):
    """sglang #37160 and LMCache #2878: the salt arrives and never reaches the cache key."""

    name = "salt_ignored"
    nature = Nature.LEAKS
    reports = ("sglang#37160", "LMCache#2878")

    def cache_namespace(self, salt: str) -> str:
        return ""

    def tier_namespace(self, salt: str) -> str:
        return ""


class TierSaltDropped(Faults):
    """sglang #26747, #37058 (fixed by #38577 in 0.5.20): the device tier separates tenants, the second
    tier's keys have no salt; isolation holds until A's prefix is evicted."""

    name = "tier_salt_dropped"
    nature = Nature.LEAKS
    reports = ("sglang#26747", "sglang#37058", "sglang#38577")

    def tier_namespace(self, salt: str) -> str:
        return ""


class HitGarbles(Faults):
    """tenstorrent/vllm #415, vllm-ascend #5269: a prompt is answered right when it is computed and garbled when its
    beginning comes from the prefix cache: prefill that resumes from cached pages reads them wrong. Counts
    and times are those of a healthy cache."""

    name = "hit_garbles"
    nature = Nature.HIDES
    reports: ClassVar[tuple[str, ...]] = ("tenstorrent/vllm#415", "vllm-ascend#5269")

    def reused(self, pool: KVPool, pages: Pages) -> None:
        self._garble(pool, pages)

    def _garble(self, pool: KVPool, pages: Pages) -> None:
        letters = self.random.choices(range(97, 123), k=len(pages) * pool.page_size)
        pool.tokens[pages] = np.array(letters, np.uint16).reshape(len(pages), pool.page_size)


class TierGarbles(HitGarbles):
    """LMCache #5151, #4492, vllm #54193: right when computed and right when found in the pool, garbled when
    the pages come back from the second tier (another dtype, another layout)."""

    name = "tier_garbles"
    nature = Nature.HIDES
    reports = ("LMCache#5151", "LMCache#4492", "vllm#54193")

    def reused(self, pool: KVPool, pages: Pages) -> None:
        """The device tier is sound."""

    def restored(self, pool: KVPool, pages: Pages) -> None:
        self._garble(pool, pages)


class TierSwaps(Faults):
    """vllm #46951: an evicted page is copied into the second tier after it has been given away. Under A's key
    lies what the next request wrote, and A, who comes back, reads it."""

    name = "tier_swaps"
    nature = Nature.LEAKS
    reports = ("vllm#46951",)

    def copies_before_reuse(self) -> bool:
        return False


class UnwrittenHash(Faults):
    """vllm #56525, #37152: a page's hash is published when it is reserved, before anything is written. Whoever
    aborts in the prefill and sends the prompt again hits pages that hold what somebody else left in them."""

    name = "unwritten_hash"
    nature = Nature.LEAKS
    reports = ("vllm#56525", "vllm#37152")

    def publishes_unwritten(self) -> bool:
        return True


class ThirdTenant(Faults):
    """Names of cache namespaces are folded into one bit: the first two tenants are kept apart, and the third
    is served the first's pages. No public report names it; a check that asks as two tenants passes it."""

    name = "third_tenant"
    nature = Nature.LEAKS

    @classmethod
    def configure(cls, config: LabConfig) -> LabConfig:
        third = LabTenant("tenant-c", "sk-lab-tenant-c")
        return config if third in config.tenants else replace(config, tenants=(*config.tenants, third))

    def router_salt(self, tenant: str, salt: str) -> str:
        return f"{sum(tenant.encode()) % 2}:{salt}"


class GatewayCache(Faults):
    """litellm #29955 (KVA-048): the gateway keeps whole answers by request body; another tenant's equal
    request gets the first tenant's answer, byte for byte. No KV page is involved."""

    name = "gateway_cache"
    nature = Nature.LEAKS
    reports: ClassVar[tuple[str, ...]] = ("litellm#29955", "KVA-048")

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._answers: dict[bytes, list[bytes]] = {}

    async def at_gateway(self, asked: Asked, send: Send) -> Response:
        if not self._kept(asked):
            return await super().at_gateway(asked, send)
        key = orjson.dumps([asked.path, asked.body], option=orjson.OPT_SORT_KEYS)
        if key in self._answers:
            return self._again(asked, self._answers[key])
        answer = await super().at_gateway(asked, send)
        if answer.status_code == 200 and isinstance(answer, EventStream):
            answer.body_iterator = self._keeping(key, answer.body_iterator)
        elif answer.status_code == 200:
            self._answers[key] = [bytes(answer.body)]
        return answer

    def _kept(self, asked: Asked) -> bool:
        return not asked.streamed

    def _again(self, asked: Asked, parts: list[bytes]) -> Response:
        if asked.streamed:
            return EventStream(_replayed(parts))
        return Response(parts[0], media_type="application/json")

    async def _keeping(self, key: bytes, frames: Any) -> AsyncIterator[bytes]:
        parts = []
        async for frame in frames:
            parts.append(frame)
            yield frame
        self._answers[key] = parts


class ResponseCache(GatewayCache):
    """litellm #29955, as most gateways have it: only where the temperature is 0, streamed or not, and a header
    says so. Two keys with one prompt get one answer: its text, its ``id``, its ``created``."""

    name = "response_cache"
    nature = Nature.LEAKS
    reports = ("litellm#29955",)

    def _kept(self, asked: Asked) -> bool:
        sampling = asked.body.get("sampling_params") or asked.body
        return not sampling.get("temperature")

    def _again(self, asked: Asked, parts: list[bytes]) -> Response:
        answer = super()._again(asked, parts)
        answer.headers["x-cache"] = "HIT"
        return answer


async def _replayed(parts: list[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
