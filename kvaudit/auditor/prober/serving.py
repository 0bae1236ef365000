"""Reads out of the nodes what serves a target's requests together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from kvaudit.auditor.checks.contract import NodeSeen
from kvaudit.auditor.checks.serving import PRODUCTION, Role, Serving, Where
from kvaudit.auditor.readings import EngineFacts, fingerprint

UNIFIED = "unified"
SEVERAL = (
    "several processes answer at one address, so its counters are now one's, now another's; give each an address of "
    "its own"
)


def serving_of(
    seen: Sequence[NodeSeen], *, alone: bool, several: bool = False, where: Where = PRODUCTION
) -> Serving:
    """``seen`` in the order of the counters, every one of them read; ``alone``: requests go to the only node's own
    address. A role that no process tells is the declared one."""
    nodes = [node.facts for node in seen if node.facts is not None]
    roles = _roles([node.effective_role or UNIFIED for node in seen], nodes)
    single = nodes[0] if alone and len(nodes) == 1 and not several else None
    return Serving(
        roles,
        _digest(nodes),
        _said(nodes, roles),
        last_freed_first=single is not None and _is_stack(single),
        replica=_process(single) if single is not None else "",
        where=where,
        unsure=SEVERAL if several else "",
    )


def _roles(names: Sequence[str], nodes: Sequence[EngineFacts]) -> tuple[Role, ...]:
    pools = [_pool(facts) for facts in nodes]
    return tuple(
        Role(name, {number: pools[number] for number, each in enumerate(names) if each == name})
        for name in dict.fromkeys(names)
    )


def _pool(facts: EngineFacts) -> int | None:
    """Tokens of all ranks together: the counters are the whole process's."""
    ranks = [rank.pool.value for rank in facts.ranks]
    known = [pool for pool in ranks if pool is not None]
    return sum(known) if known and len(known) == len(ranks) else facts.pool.value


def _is_stack(facts: EngineFacts) -> bool:
    """Whether the pages that were freed last go out first, and nothing else: a unified SGLang with pages of several
    tokens (allocator.py), whose prefix cache is off. With the cache on pages become free by eviction, the oldest
    first."""
    page, cached = facts.setting("page_size").value, facts.conditions.get("radix_cache")
    one_list = facts.role.value == UNIFIED and len(facts.ranks) <= 1
    return facts.engine == "sglang" and one_list and isinstance(page, int) and page > 1 and cached is False


def _process(facts: EngineFacts) -> str:
    """A name for the process, which says nothing of where it runs."""
    if not facts.process.value:
        return ""
    return hashlib.sha256(str(facts.process.value).encode()).hexdigest()[:16]


def _digest(nodes: Sequence[EngineFacts]) -> str:
    """Engine, version, arguments and roles of the distinct nodes, and whether a pool holds a whole context: neither
    addresses nor how many replicas there are, nor a pool that moved without crossing that."""
    if not nodes or any(facts.version.value is None for facts in nodes):
        return ""
    distinct = {
        json.dumps([dict(fingerprint(facts).exact), _holds_context(facts)], sort_keys=True, default=str)
        for facts in nodes
    }
    return hashlib.sha256("\n".join(sorted(distinct)).encode()).hexdigest()


def _holds_context(facts: EngineFacts) -> bool | None:
    pool, context = facts.pool.value, facts.context.value
    return None if pool is None or context is None else pool >= context


def _said(nodes: Sequence[EngineFacts], roles: Sequence[Role]) -> str:
    """ "sglang 0.5.13, prefill and decode, page 64"."""
    versions = sorted({facts.version.value or "of unknown version" for facts in nodes})
    names = sorted({facts.engine for facts in nodes})
    pages = sorted(
        {str(facts.setting("page_size").value) for facts in nodes if facts.setting("page_size").known}
    )
    parts = [
        f"{' and '.join(names)} {' and '.join(versions)}",
        " and ".join(role.name for role in roles),
    ]
    return ", ".join(parts + ([f"page {' and '.join(pages)}"] if pages else []))
