"""Words the pool check's result: measures as plain JSON, one sentence, and what to do now."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.findings import Findings
from kvaudit.auditor.checks.node_coverage import contradictions, scope, sentence, thousands, unread
from kvaudit.auditor.checks.pool.numbers import NodePool, required_tokens, times_context, zone_in_words
from kvaudit.auditor.checks.replicas import doubts, processes
from kvaudit.auditor.verdict import Verdict


def measures(
    nodes: Sequence[NodePool], audit: Audit, zone: tuple[int, int] | None, findings: Findings
) -> dict[str, Any]:
    """Plain JSON; every length in tokens, null where it is not known."""
    pools = [node.pool.value for node in nodes if node.pool.value is not None]
    contexts = [node.context.value for node in nodes if node.context.value is not None]
    reachable = [node.reachable(audit.rules.disagg_buffer) for node in nodes]
    known_reachable = [tokens for tokens in reachable if tokens is not None]
    fits = [node.full_requests for node in nodes if node.full_requests is not None]
    context = max(contexts, default=None)
    required = required_tokens(audit.rules.headroom, context) if context is not None else None
    pool = min(pools, default=None)
    return {
        "pool_tokens": pool,
        "context_tokens": context,
        "reachable_tokens": min(known_reachable, default=None),
        "headroom": float(audit.rules.headroom),
        "required_tokens": required,
        "missing_tokens": max(0, required - pool) if required is not None and pool is not None else None,
        "headroom_tokens": required - context if required is not None and context is not None else None,
        "danger_zone": list(zone) if zone is not None else None,
        "full_context_requests": min(fits, default=None),
        "edge_limit": audit.rules.edge_limit,
        "scope": scope([node.node for node in nodes]),
        "undecided": [sentence(unknown) for unknown in findings.unknowns],
        "warnings": [sentence(warning) for warning in findings.warnings],
        "nodes": [
            {
                "name": node.node.name,
                "role": node.role,
                "engine": node.facts.engine,
                "version": node.facts.version.value,
                "pool": node.pool.as_report(),
                "context": node.context.as_report(),
                "input_limit": node.limit.as_report(),
                "reachable_tokens": reached,
                "full_context_requests": node.full_requests,
                "ranks": [
                    {"rank": rank.rank, "usable": rank.usable.as_report()} for rank in node.facts.ranks
                ],
                "notes": list(node.facts.notes),
                "connections": node.node.connections,
            }
            for node, reached in zip(nodes, reachable, strict=True)
        ],
    }


def summarise(
    verdict: Verdict,
    findings: Findings,
    nodes: Sequence[NodePool],
    audit: Audit,
    zone: tuple[int, int] | None,
    zone_note: str,
    severity: str,
) -> str:
    """One sentence for a person on call, with the scope in it."""
    where = scope([node.node for node in nodes])
    if verdict is not Verdict.PASS:
        first, *others = findings.headline()
        text = f"Of {where}: {first}" if nodes else first
        if zone is not None:
            leaks = severity == "critical"
            path = "reach the rejection path that leaks" if leaks else "are refused by prefill alone"
            text += f"; prompts of {zone_in_words(zone)} tokens {path}"
            text += f" ({zone_note})" if zone_note else ""
        elif findings.fails and zone_note and any(node.role == "prefill" for node in nodes):
            text += f" ({zone_note})"
        if findings.fails and (also := _unlike(audit)):
            text += f"; {also[0]}"
        if others:
            text += f"; and {len(others)} more: {'; '.join(others)}"
        return sentence(text)
    tightest = min(nodes, key=lambda node: (node.pool.value or 0) / (node.context.value or 1))
    times = times_context(tightest.pool.value or 0, tightest.context.value or 1)
    return sentence(
        f"On {where} the smallest KV pool holds {thousands(tightest.pool.value or 0)} tokens, "
        f"{times:g} times the largest request of "
        f"{thousands(tightest.context.value or 0)} (at least {audit.rules.headroom:g} is required)"
    )


def _unlike(audit: Audit) -> tuple[str, ...]:
    """Why the numbers may not be those of one process."""
    return (*contradictions(processes(audit)), *doubts(audit))


def advise(
    verdict: Verdict, found: Findings, nodes: Sequence[NodePool], audit: Audit, too_small: bool
) -> str:
    """What to do now."""
    if too_small:
        short = [node for node in nodes if node.pool.value is not None and node.context.value is not None]
        needed = max(required_tokens(audit.rules.headroom, node.context.value or 0) for node in short)
        enlarge = f"the pool to {thousands(needed)} tokens (memory share, quantisation, parallelism)"
        if any(node.doubted for node in short):
            return f"Keep it out of traffic. Enlarge {enlarge}."
        edge = min(math.floor((node.pool.value or 0) / audit.rules.headroom) for node in short)
        return (
            f"Keep it out of traffic. Either enlarge {enlarge}, or refuse prompts above {thousands(edge)} tokens "
            "at the edge and declare that as the edge limit."
        )
    if verdict is Verdict.FAIL:
        return (
            "Start all that exchange pages, as a pair or by one store, with the same KV layout, a transfer buffer "
            "of the context's size and without auto-truncation, then run the gate again."
        )
    if verdict is Verdict.ERROR and not unread(audit):
        return "Correct the role and run it again: the numbers of one role were given as another's."
    if verdict is Verdict.ERROR:
        return "Make the node answer (address, key, TLS) and run it again; nothing was learnt."
    if verdict is Verdict.INCONCLUSIVE and _unlike(audit):
        return (
            "Ask each process itself, not through a proxy that rewrites its answers or a Service before several, and "
            "run it again; until then treat the pool as too small."
        )
    if verdict is Verdict.INCONCLUSIVE:
        return "Supply what is named above; until then treat the pool as too small."
    return "Nothing now; run it again after every start or change of capacity."
