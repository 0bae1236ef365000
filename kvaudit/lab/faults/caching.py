"""Faults of caches: prefixes that cross tenants, hits that never were, and answers kept at the gateway."""

from __future__ import annotations

from hashlib import blake2b
from typing import ClassVar

from kvaudit.lab.faults.base import Faults, strong_hash


class PhantomCache(Faults):
    """vllm #12621 (KVA-015, CVE-2025-25183) and #44701 (KVA-026): hashes of first pages collide; a prompt
    that was never sent before is served with another prompt's first page and reports cached tokens."""

    name = "phantom_cache"
    reports: ClassVar[tuple[str, ...]] = ("vllm#12621", "vllm#44701", "CVE-2025-25183", "KVA-015", "KVA-026")

    def page_hash(self, previous: bytes, page: bytes) -> bytes:
        if len(previous) == 12:  # a later page: its chain is sound
            return strong_hash(previous, page)
        return b"weak-hash-0" + bytes([blake2b(page, digest_size=1).digest()[0] & 0x0F])


class SharedPrefix(Faults):
    """vllm #17045 (KVA-016, CVE-2025-46570): no salt is set, the prefix cache is one for all tenants;
    cached tokens and a faster first token tell B what A has sent."""

    name = "shared_prefix"
    reports = ("vllm#17045", "CVE-2025-46570", "KVA-016")

    def router_salt(self, tenant: str, salt: str) -> str:
        return salt


class SaltIgnored(Faults):
    """sglang #37160 and LMCache #2878: the salt arrives and never reaches the cache key."""

    name = "salt_ignored"
    reports = ("sglang#37160", "LMCache#2878")

    def cache_namespace(self, salt: str) -> str:
        return ""

    def tier_namespace(self, salt: str) -> str:
        return ""


class TierSaltDropped(Faults):
    """sglang #26747, #37058 (fixed by #38577 in 0.5.20): the device tier separates tenants, the second
    tier's keys have no salt; isolation holds until A's prefix is evicted."""

    name = "tier_salt_dropped"
    reports = ("sglang#26747", "sglang#37058", "sglang#38577")

    def tier_namespace(self, salt: str) -> str:
        return ""


class GatewayCache(Faults):
    """litellm #29955 (KVA-048): the gateway keeps whole answers by request body; another tenant's equal
    request gets the first tenant's answer, byte for byte. No KV page is involved."""

    name = "gateway_cache"
    reports = ("litellm#29955", "KVA-048")

    def router_caches_answers(self) -> bool:
        return True
