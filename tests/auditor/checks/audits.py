"""Audits out of a few numbers, for the tables of the passive checks."""

from __future__ import annotations

from typing import Any

from kvaudit.auditor.checks.contract import Audit, NodeSeen, Rules
from kvaudit.auditor.readings import EngineFacts, RankPool, read, unknown

CONTEXT = 1_048_576
HIDDEN = unknown("GET /server_info is absent")

_USUAL: Any = object()


def reading(value: Any) -> Any:
    """A value as read; None is an unknown reading; a reading stays itself."""
    if value is None:
        return HIDDEN
    return value if hasattr(value, "known") else read(value, "GET /server_info")


def node(
    role: str = "prefill",
    pool: Any = 2_040_000,
    context: Any = CONTEXT,
    *,
    version: Any = "0.5.22",
    engine: str = "sglang",
    limit: Any = _USUAL,
    name: str = "",
    url: str = "",
    declared: str = "",
    ranks: tuple[Any, ...] | None = None,
    settings: dict[str, Any] | None = None,
    **facts: Any,
) -> NodeSeen:
    """One node that answered; ``limit`` is SGLang's min(context, pool) - 6 unless given."""
    if limit is _USUAL:
        known = isinstance(pool, int) and isinstance(context, int)
        limit = min(pool, context) - 6 if known else None
    shards = (pool,) if ranks is None else ranks
    return NodeSeen(
        name=name or f"{role or 'node'}-0",
        url=url or f"http://{name or role or 'node'}:30000",
        role=declared,
        facts=EngineFacts(
            engine=engine,
            version=reading(version),
            context=reading(context),
            pool=reading(pool),
            input_limit=reading(limit),
            role=reading(role or None),
            ranks=tuple(RankPool(str(number), reading(shard)) for number, shard in enumerate(shards)),
            settings={key: reading(value) for key, value in (settings or {}).items()},
            **facts,
        ),
    )


def silent(name: str = "decode-0", role: str = "decode", problem: str = "connection refused") -> NodeSeen:
    return NodeSeen(name=name, url=f"http://{name}:30000", role=role, problem=problem)


def audit(*nodes: NodeSeen, rules: Rules | None = None, **more: Any) -> Audit:
    return Audit(deployment="glm", nodes=nodes, rules=rules or Rules(), **more)
