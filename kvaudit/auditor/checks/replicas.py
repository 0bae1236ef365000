"""Tells several processes behind one address from one: a Service, a load balancer or a round-robin name answers with
whichever replica the connection reached, and what was read of one says nothing of the others (redteam case node_vip).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

from kvaudit.auditor.checks.contract import Audit, NodeSeen
from kvaudit.auditor.checks.node_coverage import listed, read_nodes
from kvaudit.auditor.readings import POOL_TOLERANCE, EngineFacts, Reading


def processes(audit: Audit) -> tuple[NodeSeen, ...]:
    """The nodes that answered, and beside each the further processes that answered at its address."""
    return tuple(
        process
        for node in read_nodes(audit)
        for process in (
            node,
            *(
                replace(
                    node, name=f"{node.name} (process {number})", facts=facts, others=(), behind=node.name
                )
                for number, facts in enumerate(node.others, start=2)
            ),
        )
    )


def differences(one: EngineFacts, other: EngineFacts) -> list[str]:
    """Clauses on what two readings of one address tell differently: "KV pool 16,384 against 5,328". Only what both
    know, from one source, is compared. Pools are drawn anew at each start: of two processes they may be 2 % apart."""
    same_process = one.process.known and one.process.value == other.process.value
    return [
        f"{name} {_shown(first.value)} against {_shown(second.value)}"
        for name, first, second in _pairs(one, other)
        if first.known
        and second.known
        and first.source == second.source
        and first.value != second.value
        and not (name == "KV pool" and not same_process and _near(first.value, second.value))
    ]


def _pairs(one: EngineFacts, other: EngineFacts) -> Iterator[tuple[str, Reading[Any], Reading[Any]]]:
    for title, name in (
        ("version", "version"),
        ("model", "model"),
        ("revision", "revision"),
        ("context", "context"),
        ("role", "role"),
        ("KV pool", "pool"),
    ):
        yield title, getattr(one, name), getattr(other, name)
    for name in sorted({*one.settings, *other.settings}):
        yield name, one.setting(name), other.setting(name)


def _near(one: Any, other: Any) -> bool:
    return bool(abs(one - other) <= POOL_TOLERANCE * min(one, other))


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def distinct(one: EngineFacts, other: EngineFacts) -> bool:
    """Whether two readings are of two processes, or of one that does not say the same twice."""
    if one.process.known and other.process.known and one.process.value != other.process.value:
        return True
    return bool(differences(one, other))


def doubts(audit: Audit) -> tuple[str, ...]:
    """One sentence for each reason why what was read of an address may not hold for whatever answers there."""
    return tuple(sentence for node in read_nodes(audit) for sentence in _doubts(node))


def _doubts(node: NodeSeen) -> Iterator[str]:
    assert node.facts is not None
    several = (node.facts, *node.others)
    unlike = [clause for one, other in combinations(several, 2) for clause in differences(one, other)]
    unlike = list(dict.fromkeys(unlike))[:4]
    count = 1 + len(node.others)
    if node.unanswered:
        yield (
            f"{node.name} answered one connection and not another, so whether one process answers there is not known: "
            f"{node.unanswered.rstrip('.')}"
        )
    if node.replicas:
        if count != node.replicas:
            few = "" if node.facts.process.known else "; its answers do not tell which process gave them"
            yield (
                f"{node.replicas} replicas were declared behind {node.name}, and {count} answered in "
                f"{node.connections} connections{few}"
            )
        if unlike:
            yield f"the replicas behind {node.name} are unequal: {listed(unlike)}"
        return
    if any(node.facts.process.value == other.process.value for other in node.others if other.process.known):
        yield f"{node.name} does not say the same over two connections: {listed(unlike)}"
    elif count > 1:
        which = f" and differ: {listed(unlike)}" if unlike else ""
        yield (
            f"several processes answer at the address of {node.name}{which}; give each an address of its own, or say "
            "how many there are (--replicas N, replicas in the fleet file)"
        )
