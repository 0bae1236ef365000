"""Answers the conditions of advisories from the nodes of an audit: read, computed or declared.

A condition that any source says is met counts as met; it is ruled out when one says so and none
objects; else it is unknown and must be read or declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from packaging.version import Version

from kvaudit.auditor.advisories.newest import build_of
from kvaudit.auditor.checks.contract import Audit, NodeSeen
from kvaudit.auditor.checks.replicas import processes
from kvaudit.auditor.engines import describe
from kvaudit.auditor.readings import EngineFacts

Answer = bool | None

COMPUTED = (
    "prefill_pool<context_length",
    "pool<context_length",
    "decode_pool>prefill_pool",
    "kv_cache_dtype_mismatch",
)


def among_all(audit: Audit) -> dict[str, Answer]:
    """The answers that only all nodes together give; compute them once for an audit of many nodes."""
    nodes = processes(audit)
    return {condition: _computed(condition, nodes, audit) for condition in COMPUTED}


def answers_for(
    node: NodeSeen, audit: Audit, computed: Mapping[str, Answer] | None = None
) -> Callable[[str], Answer]:
    """condition -> True, False or None, for this node among those of the audit (``computed``: `among_all`)."""
    together = among_all(audit) if computed is None else computed

    def answer(condition: str) -> Answer:
        said = [
            _read(node, condition),
            together.get(condition),
            audit.rules.conditions.get(condition),
        ]
        if True in said:
            return True
        return False if False in said else None

    return answer


def _read(node: NodeSeen, condition: str) -> Answer:
    facts = node.facts
    if facts is None:
        return None
    if condition in facts.conditions:
        return bool(facts.conditions[condition])
    if condition == "pd_disaggregation":
        role = node.effective_role
        return None if not role else role in ("prefill", "decode")
    if condition == "mooncake_store":
        return _mooncake_store(facts)
    return _no_connector(facts, condition)


def _mooncake_store(facts: EngineFacts) -> Answer:
    """Whether Mooncake stores pages (rather than only carrying them)."""
    if facts.conditions.get("hicache") is False or facts.conditions.get("mooncake") is False:
        return False
    store = facts.setting("hicache_storage_backend")
    return str(store.value).lower() == "mooncake" if store.known else None


def _no_connector(facts: EngineFacts, condition: str) -> Answer:
    """From some release a configured connector registers metrics; where metrics were read (the pool is
    known from nowhere else) and none of them is there, the connector is not."""
    since = describe(facts.engine).connectors_since.get(condition)
    build = build_of(facts.engine, facts.version.value)
    recent = (
        since is not None
        and build.kind == "release"
        and build.low is not None
        and build.low >= Version(since)
    )
    return False if recent and facts.pool.known and condition not in facts.components else None


def _computed(condition: str, nodes: Sequence[NodeSeen], audit: Audit) -> Answer:
    prefill = [node.facts for node in nodes if node.effective_role == "prefill" and node.facts]
    decode = [node.facts for node in nodes if node.effective_role == "decode" and node.facts]
    everyone = [node.facts for node in nodes if node.facts]
    if condition == "prefill_pool<context_length":
        return _any_below([facts.pool.value for facts in prefill], _context(everyone, audit))
    if condition == "pool<context_length":
        return _any_below([facts.pool.value for facts in everyone], _context(everyone, audit))
    if condition == "decode_pool>prefill_pool":
        pools = [facts.pool.value for facts in prefill]
        larger = [facts.pool.value for facts in decode]
        if not pools or not larger or None in pools or None in larger:
            return None
        return max(filter(None, larger)) > min(filter(None, pools))
    if condition == "kv_cache_dtype_mismatch":
        kinds = {facts.setting("kv_cache_dtype").value for facts in (*prefill, *decode)}
        return None if None in kinds or not prefill or not decode else len(kinds) > 1
    return None


def _context(everyone: Sequence[EngineFacts], audit: Audit) -> int | None:
    """The largest context among the nodes and the declared one; None while one is not known."""
    contexts = [facts.context.value for facts in everyone]
    if audit.rules.context is not None:
        contexts = [*(context for context in contexts if context is not None), audit.rules.context]
    return None if None in contexts or not contexts else max(filter(None, contexts))


def _any_below(pools: Sequence[int | None], context: int | None) -> Answer:
    if not pools or context is None:
        return None
    if any(pool is not None and pool < context for pool in pools):
        return True
    return None if None in pools else False
