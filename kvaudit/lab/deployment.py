"""Builds a whole lab deployment in one process: nodes, fabric, router, and their HTTP applications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from starlette.types import ASGIApp

from kvaudit.lab.clock import Compute
from kvaudit.lab.config import SCALES, LabConfig
from kvaudit.lab.faults import combine
from kvaudit.lab.http_sglang import SGLangApi
from kvaudit.lab.node import Node, Trace
from kvaudit.lab.request import Call
from kvaudit.lab.router import NodeApi, Router
from kvaudit.lab.scheduler import DecodeNode, PrefillNode, UnifiedNode
from kvaudit.lab.transfer import Fabric

ROLES: dict[str, type[Node]] = {"prefill": PrefillNode, "decode": DecodeNode, "unified": UnifiedNode}

FIRST_STRAY_TICKET = 1_000_000
"""Of a replica that is on nobody's list."""


class Deployment:
    """Build inside a running event loop. ``tenant_of`` maps the ticket of a request to its tenant
    (tests only: no endpoint shows it)."""

    def __init__(self, config: LabConfig, faults: Sequence[str] = (), *, first_ticket: int = 1) -> None:
        kind = combine(faults)
        if config.flavour not in kind.flavours:
            raise ValueError(f"fault {kind.name!r} does not exist in flavour {config.flavour!r}")
        if config.unified and kind.disaggregated:
            raise ValueError(
                f"fault {kind.name!r} lies in the transfer from prefill to decode: a unified engine has none"
            )
        self.config = config = kind.configure(config)
        _check_vllm_pool(config, kind.name)
        self.faults = kind(config.seed)
        self.compute = Compute()
        self.fabric = Fabric(self.compute, config.durations, config.chunk_pages)
        self.tenant_of: dict[int, str] = {}
        self._tickets: dict[int, int] = {}
        self._last_ticket = first_ticket - 1
        self._next_pools: tuple[int, int] | None = None
        roles = ["unified"] if config.unified else ["prefill", "decode"]
        self.nodes = [
            ROLES[role](config, role, self.faults, self.fabric, self.compute, config.seed + number)
            for number, role in enumerate(roles)
        ]
        self.apis: list[NodeApi] = [self._api_of(node) for node in self.nodes]
        self.router = Router(config, self.faults, self.apis, config.seed)
        self.router.after_request.append(self._restart_when_due)
        self.stray: Deployment | None = None
        if kind.stray:
            self.stray = Deployment(_stray(config), kind.stray, first_ticket=FIRST_STRAY_TICKET)
            self.stray.tenant_of = self.tenant_of
            self.router.stray = self.stray.router

    def _api_of(self, node: Node) -> NodeApi:
        if self.config.flavour == "sglang":
            return SGLangApi(node, self.ticket)
        from kvaudit.lab.http_vllm import VLLMApi

        return VLLMApi(node, self.ticket)

    def ticket(self, call: Call) -> int:
        """The writer tag of a request: both legs of one room share it."""
        if call.room is not None and call.room in self._tickets:
            return self._tickets.pop(call.room)
        self._last_ticket += 1
        if call.room is not None:
            self._tickets[call.room] = self._last_ticket
            while len(self._tickets) > 10_000:
                self._tickets.pop(next(iter(self._tickets)))
        self.tenant_of[self._last_ticket] = self.router.tenant_of_room.get(call.room or 0, "")
        while len(self.tenant_of) > 100_000:
            self.tenant_of.pop(next(iter(self.tenant_of)))
        return self._last_ticket

    def _restart_when_due(self, served: int) -> None:
        """The capacity fault: a restart waits until nothing is at work."""
        self._next_pools = self.faults.next_pools(served, self.config) or self._next_pools
        if self._next_pools is None or not all(node.idle for node in self.nodes):
            return
        for node in self.nodes:
            node.restart_with(self._next_pools[1] if node.role == "decode" else self._next_pools[0])
        self._next_pools = None

    def watch(self, trace: Trace) -> None:
        """Show every read of attention to ``trace``."""
        for node in self.nodes:
            node.trace = trace
        if self.stray is not None:
            self.stray.watch(trace)

    def applications(self) -> list[tuple[str, ASGIApp]]:
        """("router", app), then one per node under its role."""
        nodes = [(api.node.role, api.application()) for api in self.apis]
        return [("router", self.router.application()), *nodes]

    def described(self, entry: str, node_urls: Sequence[str]) -> dict[str, Any]:
        """What ``kvaudit lab serve --json`` prints."""
        config = self.config
        return {
            "entry": entry,
            "nodes": [
                {"role": node.role, "url": url} for node, url in zip(self.nodes, node_urls, strict=True)
            ],
            "tenants": [{"name": tenant.name, "key": tenant.key} for tenant in config.tenants],
            "model": config.model,
            "context": config.context_tokens,
            "pools": {node.role: node.pool.capacity for node in self.nodes},
            "engine": config.flavour,
            "version": config.version,
            "faults": self.faults.name,
            "router_key": config.router_key,
            "node_key": config.node_key,
        }

    async def stop(self) -> None:
        if self.stray is not None:
            await self.stray.stop()
        await self.fabric.stop()
        self.compute.close()


def _stray(config: LabConfig) -> LabConfig:
    """A replica on a smaller card, as an autoscaler finds one: the incident's ratio of pool to context, and
    customers on it."""
    small = SCALES["small"]
    pool = config.context_tokens * small.prefill_pool // small.context
    return replace(config, prefill_pool=pool, customers=max(2, config.customers))


def _check_vllm_pool(config: LabConfig, fault: str) -> None:
    """vLLM does not start when one request of the full context does not fit (0.29 and later)."""
    if config.flavour != "vllm" or "wedge" in fault:
        return
    for role in ("unified",) if config.unified else ("prefill", "decode"):
        usable = config.pool(role) - config.page_size  # block 0 is the null block
        if usable < config.context_tokens:
            raise ValueError(
                f"To serve at least one request with the model's max seq len ({config.context_tokens}), more KV "
                f"cache is needed than is available. The estimated maximum model length is {usable}. Give "
                f"the {role} node a larger pool, or use --fault wedge_at_limit, which starts anyway as "
                "releases up to 0.19.1 did."
            )


def with_options(config: LabConfig, **options: Any) -> LabConfig:
    """``config`` with every option that is not None."""
    return replace(config, **{name: value for name, value in options.items() if value is not None})
