"""Faults of what a server says about itself, and to whom."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from kvaudit.lab.config import ENLARGED_POOL, LabConfig
from kvaudit.lab.faults.base import Faults, Nature

_POOL_FIELDS = frozenset({"max_total_num_tokens", "max_req_input_len", "token_capacity"})
_POOL_METRICS = re.compile(
    r"^(?:# \w+ )?(?:sglang:(?:max_total_num_tokens|num_pages|kv_available_tokens)\b|vllm:cache_config_info)"
)


class HiddenPool(Faults):
    """The pool is not exposed (SGLang's Rust frontend drops ``max_req_input_len``; a gateway that trims
    the rest is ordinary): whoever cannot read the number must not pass it."""

    name = "hidden_pool"
    nature = Nature.HEALTHY
    reports: ClassVar[tuple[str, ...]] = ("sglang Rust frontend allow-list",)

    def disclose(self, path: str, document: Any) -> Any:
        return _without(document)

    def metrics(self, text: str) -> str:
        return "".join(line for line in text.splitlines(True) if not _POOL_METRICS.match(line))


class ZeroGauges(Faults):
    """Gauges that were never set are exported as 0.0, and a snapshot before its first publication says 0
    (reference sglang.md 1.10): zero is unknown, not a pool."""

    name = "zero_gauges"
    nature = Nature.HEALTHY
    reports = ("vllm#15538",)

    def disclose(self, path: str, document: Any) -> Any:
        return _mapped(document, lambda name, value: 0 if name in _POOL_FIELDS else value)

    def metrics(self, text: str) -> str:
        zeroed = re.sub(r"(?m)^((?:sglang|vllm):[^ ]+|[^#]*?\}) [0-9.e+-]+$", r"\1 0.0", text)
        return re.sub(r'(kv_cache_size_tokens|num_gpu_blocks)="\d+"', r'\1="0"', zeroed)


class NightlyVersion(Faults):
    """A build from main: its number says nothing about the fixes in it (slime #1455 reported
    0.0.0.dev1+gdce8b0606 for what was about 0.5.7)."""

    name = "nightly_version"
    nature = Nature.HEALTHY
    reports = ("slime#1455",)

    @classmethod
    def configure(cls, config: LabConfig) -> LabConfig:
        nightly = {"sglang": "0.0.0.dev1+gdce8b0606", "vllm": "0.1.dev1+g2c27c294c.d20260608"}
        return replace(config, engine_version=config.engine_version or nightly[config.flavour])


class Unauthenticated(Faults):
    """vllm #58144 and CVE-2026-48746: completions are served without any key."""

    name = "unauthenticated"
    nature = Nature.OPEN
    reports = ("vllm#58144", "CVE-2026-48746")

    @classmethod
    def configure(cls, config: LabConfig) -> LabConfig:
        return replace(config, node_key="")

    def router_requires_key(self) -> bool:
        return False


class KeysInServerInfo(Faults):
    """SGLang with only ``--admin-api-key`` set: ordinary paths are open and ``/server_info`` shows the
    admin key and the key file's password in clear (reference sglang.md 1.7, 7)."""

    name = "keys_in_server_info"
    nature = Nature.OPEN
    reports = ("sglang /server_info",)
    flavours = ("sglang",)

    @classmethod
    def configure(cls, config: LabConfig) -> LabConfig:
        return replace(
            config,
            node_key="",
            admin_key="sk-lab-admin-not-secret",
            keyfile_password="lab-not-secret",  # noqa: S106  fake: it is there to be found
        )


class CapacityChange(Faults):
    """The runbook's rule 5: the node comes back from a restart with another pool (memory fraction,
    quantisation, graph sizes), every ``EVERY`` requests; evidence from before no longer describes it."""

    name = "capacity_change"
    nature = Nature.OPEN
    reports = ("runbook rule 5",)
    EVERY = 50

    @classmethod
    def configure(cls, config: LabConfig) -> LabConfig:
        return replace(config, prefill_pool=config.prefill_pool or ENLARGED_POOL[config.scale])

    def next_pools(self, served: int, config: LabConfig) -> tuple[int, int] | None:
        if served % self.EVERY:
            return None
        large = served // self.EVERY % 2 == 0
        first = config.pool("prefill") if large else config.pool("prefill") * 3 // 4
        return first, config.pool("decode")


def _without(document: Any) -> Any:
    if isinstance(document, dict):
        return {name: _without(value) for name, value in document.items() if name not in _POOL_FIELDS}
    if isinstance(document, list):
        return [_without(item) for item in document]
    return document


def _mapped(document: Any, change: Callable[[str, Any], Any], name: str = "") -> Any:
    if isinstance(document, dict):
        return {key: _mapped(value, change, key) for key, value in document.items()}
    if isinstance(document, list):
        return [_mapped(item, change, name) for item in document]
    return change(name, document)
