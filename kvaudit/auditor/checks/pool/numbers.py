"""Computes what each node holds, accepts and refuses, and the danger zone between a pair; all in tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvaudit.auditor.checks.contract import Audit, NodeSeen
from kvaudit.auditor.checks.replicas import processes
from kvaudit.auditor.engines import describe
from kvaudit.auditor.readings import (
    EngineFacts,
    Reading,
    declared,
    derived,
    if_uniform,
    smallest_pool,
    unknown,
)

DISAGGREGATED = ("prefill", "decode")
EDGE = "declared edge limit"
"""The source of a context that is bounded by the operator's edge."""


@dataclass(frozen=True, slots=True)
class NodePool:
    """The numbers of one node, in tokens. ``context`` is what clients may send to it."""

    node: NodeSeen
    facts: EngineFacts
    pool: Reading[int]
    context: Reading[int]
    limit: Reading[int]  # first length that the engine refuses
    full_requests: int | None

    @property
    def role(self) -> str:
        return self.node.effective_role

    @property
    def doubted(self) -> bool:
        """Whether the pool is a bound or a doubtful number: no limit may be derived from it."""
        return any("low confidence" in text.lower() for text in (self.pool.source, *self.facts.notes))

    def reachable(self, buffer: int | None) -> int | None:
        """The longest request that fits everywhere: min(limit + margin, pool, transfer buffer)."""
        if self.pool.value is None:
            return None
        bounds = [self.pool.value]
        if self.limit.value is not None:
            bounds.append(self.limit.value + (describe(self.facts.engine).input_margin or 0))
        if buffer is not None and self.role != "unified":
            bounds.append(buffer)
        return min(bounds)


def measure_nodes(audit: Audit) -> list[NodePool]:
    """Numbers per node. The members of a disaggregated pair share the largest context among them:
    clients see one entry, and a prompt that either side accepts must fit on both."""
    found = []
    for node in processes(audit):
        facts = node.facts
        assert facts is not None
        if audit.rules.conditions.get("hybrid_kv") is False:
            facts = if_uniform(facts)
        pool = node_pool(facts)
        found.append((node, facts, pool, effective_context(facts, audit.rules.context)))
    paired = [context for node, _, _, context in found if node.effective_role in DISAGGREGATED]
    nodes = []
    for node, facts, pool, own in found:
        context = own
        if node.effective_role in DISAGGREGATED and own.known:
            context = max((each for each in paired if each.known), key=lambda each: each.value or 0)
        nodes.append(
            NodePool(
                node=node,
                facts=facts,
                pool=pool,
                context=edge_bounded(context, audit.rules.edge_limit),
                limit=input_limit(facts, pool, own),
                full_requests=None,
            )
        )
    return [with_full_requests(each) for each in nodes]


def with_full_requests(node: NodePool) -> NodePool:
    """Adds how many largest requests the node holds at once, summed over its ranks."""
    if node.pool.value is None or node.context.value is None:
        return node
    ranks = [rank.usable.value or 0 for rank in node.facts.ranks] or [node.pool.value]
    number = sum(pool // node.context.value for pool in ranks)
    return replace(node, full_requests=number)


def node_pool(facts: EngineFacts) -> Reading[int]:
    """The smallest usable pool over ranks; unknown when the adapter or any rank says so."""
    if not facts.ranks or not facts.pool.known:
        return facts.pool
    ranks = smallest_pool(facts.ranks)
    if not ranks.known:
        return ranks
    return min(facts.pool, ranks, key=lambda reading: reading.value or 0)


def effective_context(facts: EngineFacts, stated: int | None) -> Reading[int]:
    """The context read from the engine, or the declared one where that is larger or alone."""
    if stated is None:
        return facts.context
    if facts.context.value is not None and facts.context.value >= stated:
        return facts.context
    return declared(stated, "declared context")


def edge_bounded(context: Reading[int], edge_limit: int | None) -> Reading[int]:
    """The declared edge limit, where one is declared and the context is not smaller still."""
    if edge_limit is None or (context.value is not None and context.value <= edge_limit):
        return context
    return declared(edge_limit, EDGE)


def input_limit(facts: EngineFacts, pool: Reading[int], context: Reading[int]) -> Reading[int]:
    """The first length that the engine refuses: as read, else by the engine's own formula."""
    if facts.input_limit.known:
        return facts.input_limit
    margin = describe(facts.engine).input_margin
    if margin is None or pool.value is None or facts.context.value is None:
        return facts.input_limit
    limit = min(facts.context.value, pool.value) - margin
    return derived(limit, f"min(context, pool) - {margin}") if limit > 0 else unknown("the pool is tiny")


def danger_zone(
    nodes: Sequence[NodePool], *, decode_unread: bool = False
) -> tuple[tuple[int, int] | None, str]:
    """[prefill limit, min(decode limit, C)) over all pairs, half-open, in tokens, and a note.

    Without a decode node the upper end is C; ``decode_unread`` says that one was given and did not answer. None when
    it is empty or there is no prefill side."""
    prefill = [
        node
        for node in nodes
        if node.role == "prefill" or (not node.role and not describe(node.facts.engine).by_pointers)
    ]
    decode = [node for node in nodes if node.role == "decode"]
    if len(prefill) > 1 and not any(node.role for node in prefill):
        # Whoever has no role is sent what it announces itself, not what another one does.
        zones = [danger_zone([node, *decode], decode_unread=decode_unread) for node in prefill]
        return max(zones, key=lambda each: each[0][1] - each[0][0] if each[0] else 0)
    starts = [node.limit.value or node.pool.value for node in prefill]
    contexts = [node.context.value for node in prefill if node.context.value is not None]
    known_starts = [start for start in starts if start is not None]
    if not known_starts or not contexts:
        return None, ""
    low, ceiling = min(known_starts), max(contexts)
    margin = max(describe(node.facts.engine).input_margin or 0 for node in prefill)
    note = ""
    if not decode:
        note, high = "decode could not be read" if decode_unread else "decode was not given", ceiling
        if low >= ceiling - margin:  # no decode node can take more than context - margin
            return None, note
    elif any(node.limit.value is None for node in decode):
        note, high = "decode's own limit is not exposed", ceiling
    else:
        high = min(max(node.limit.value or 0 for node in decode), ceiling)
    return ((low, high), note) if low < high else (None, note)


def times_context(pool: int, context: int) -> float:
    """Pool / context, rounded down to hundredths: what falls short never reads as enough. Tokens, context > 0."""
    return pool * 100 // context / 100


def zone_in_words(zone: tuple[int, int]) -> str:
    """A danger zone [low, high) for people, who read both ends as inside: ``5,322 to 8,185``."""
    return f"{zone[0]:,} to {zone[1] - 1:,}"


def required_tokens(headroom: float, context: int) -> int:
    """The least pool: headroom x C, rounded up to whole tokens."""
    return math.ceil(round(headroom * context, 6))
