"""Defines a lab deployment: flavour, scale, pools, keys and durations."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from kvaudit.lab.clock import Durations

Flavour = Literal["sglang", "vllm"]
Scale = Literal["small", "incident"]
FreeList = Literal["lifo", "fifo", "sglang-pd", "vllm-lru"]
"""Which free page goes out next; who does which: `kvaudit.lab.pool.KVPool`."""

FREE_LISTS: tuple[FreeList, ...] = get_args(FreeList)


@dataclass(frozen=True, slots=True)
class Size:
    """Page, context and pools of a scale, in tokens."""

    page: int
    context: int
    prefill_pool: int
    decode_pool: int
    durations: Durations
    waiting_timeout: float  # seconds decode waits for a transfer; the real engine's is 300


SCALES: dict[str, Size] = {
    # the incident's ratio of pool to context at an eighth of a thousandth of its cost
    "small": Size(16, 8_192, 5_328, 11_040, Durations(), 2.0),
    # the incident at its true size; a prefill of the whole context takes about three seconds
    "incident": Size(64, 1_048_576, 681_280, 1_412_544, Durations(b=1e-6, c=1e-12, decode_token=2e-4), 30.0),
}

ENLARGED_POOL = {"small": 16_384, "incident": 2_040_000}
"""The prefill pool after the incident's fix: headroom 2 at small scale, the operators' own at the other."""

VERSIONS = {"sglang": "0.5.22", "vllm": "0.32.0"}


@dataclass(frozen=True, slots=True)
class LabTenant:
    """A tenant of the lab, with the key that its router asks for."""

    name: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class LabConfig:
    """A lab deployment. Pools are in tokens; None = the scale's. ``node_key`` is the key that the
    nodes themselves ask for ("" = open, as behind a gateway); ``router_key`` is the control plane's."""

    flavour: Flavour = "sglang"
    scale: Scale = "small"
    unified: bool = False
    prefill_pool: int | None = None
    decode_pool: int | None = None
    context: int | None = None
    page: int | None = None
    order: FreeList = "lifo"
    engine_version: str = ""
    model: str = "lab-copier"
    temperature: float = 0.0
    prefix_cache: Literal["salted", "shared", "off"] = "salted"
    second_tier: bool = True
    cache_report: bool = True
    allow_auto_truncate: bool = False
    node_key: str = field(default="", repr=False)
    admin_key: str = field(default="", repr=False)
    keyfile_password: str = field(default="", repr=False)
    router_key: str = field(default="sk-lab-router-control", repr=False)
    tenants: tuple[LabTenant, ...] = (
        LabTenant("tenant-a", "sk-lab-tenant-a"),
        LabTenant("tenant-b", "sk-lab-tenant-b"),
    )
    customers: int = 0  # requests of other customers before each one of a tenant (`kvaudit.lab.customers`)
    chunk_pages: int = 64  # pages per write of the transfer engine
    waiting_timeout: float | None = None  # seconds; the scale's when None
    timing: Durations | None = None  # the scale's when None
    time_scale: float | None = None
    seed: int = 0

    @property
    def size(self) -> Size:
        return SCALES[self.scale]

    @property
    def page_size(self) -> int:
        return self.page or self.size.page

    @property
    def context_tokens(self) -> int:
        return self.context or self.size.context

    @property
    def waits(self) -> float:
        """Seconds that decode waits for a transfer."""
        return self.size.waiting_timeout if self.waiting_timeout is None else self.waiting_timeout

    @property
    def durations(self) -> Durations:
        chosen = self.timing or self.size.durations
        return chosen if self.time_scale is None else replace(chosen, scale=self.time_scale)

    @property
    def version(self) -> str:
        return self.engine_version or VERSIONS[self.flavour]

    def pool(self, role: str) -> int:
        """Tokens of the pool of a ``role``, in whole pages."""
        if role == "decode":
            tokens = self.decode_pool or self.size.decode_pool
        elif self.prefill_pool is not None:
            tokens = self.prefill_pool
        elif self.flavour == "vllm":
            tokens = ENLARGED_POOL[self.scale]  # vLLM does not start with a pool below the context
        else:
            tokens = self.size.prefill_pool
        return tokens // self.page_size * self.page_size
