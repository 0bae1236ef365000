"""Judges the pool and context that were read of each node; sends nothing of its own. What the check is for:
`kvaudit.auditor.checks.pool`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.findings import Findings
from kvaudit.auditor.checks.node_coverage import (
    contradictions,
    evidence,
    missing_roles,
    routers,
    thousands,
    unlisted_workers,
    unread,
    wrong_roles,
)
from kvaudit.auditor.checks.pool import CHECK
from kvaudit.auditor.checks.pool.layout import judge_pairing, judge_stores
from kvaudit.auditor.checks.pool.numbers import (
    DISAGGREGATED,
    EDGE,
    NodePool,
    danger_zone,
    effective_context,
    measure_nodes,
    required_tokens,
)
from kvaudit.auditor.checks.pool.report import advise, measures, summarise
from kvaudit.auditor.checks.replicas import doubts, processes
from kvaudit.auditor.verdict import Result, Verdict

INCIDENT = "KVA-001"

DOES_NOT_PROVE = (
    "It proves room, not isolation: it says nothing of what happens to a request that is refused, of races "
    "between requests, or of any process that was not read; behind an address that spreads connections over several "
    "(a Service) that may be most of them (--replicas). Pools are drawn anew at every start."
)


class PoolProbe:
    """Asks every given node for its KV pool (per rank), its context and its own input limit."""

    id = CHECK.id

    async def observe(self, audit: Audit) -> None:
        """Nothing beyond the readings that every passive check shares."""

    def judge(self, seen: None, audit: Audit) -> Result:
        """Readings and rules -> result."""
        problem = bad_rules(audit)
        if problem:
            return Result(self.id, Verdict.ERROR, problem, next="Correct the rule and run the check again.")
        nodes = measure_nodes(audit)
        findings = Findings()
        findings.errors += unread(audit)
        judge_coverage(audit, nodes, findings)
        for node in nodes:
            judge_node(node, audit, findings)
        silent = [node for node in audit.nodes if node.facts is None]
        zone, zone_note = danger_zone(nodes, decode_unread=any(node.role == "decode" for node in silent))
        too_small = bool(findings.fails)
        judge_pairing(nodes, audit.rules, findings)
        judge_stores(nodes, audit.rules, findings)
        severity = grade(nodes, zone) if too_small else ("high" if findings.fails else "")
        verdict = findings.verdict()
        if verdict is Verdict.PASS and not nodes:
            verdict = Verdict.INCONCLUSIVE  # cannot happen while coverage asks for a node; kept fail closed
        return Result(
            check=self.id,
            verdict=verdict,
            summary=summarise(
                verdict, findings, nodes, audit, zone if too_small else None, zone_note, severity
            ),
            measures=measures(nodes, audit, zone, findings),
            next=advise(verdict, findings, nodes, audit, too_small),
            does_not_prove=DOES_NOT_PROVE,
            warn=bool(findings.warnings) and verdict in (Verdict.PASS, Verdict.INCONCLUSIVE),
            severity=severity,
            evidence=evidence(audit),
        )


def bad_rules(audit: Audit) -> str:
    """A sentence when the rules cannot be used; "" when they can."""
    headroom = audit.rules.headroom
    if isinstance(headroom, bool) or not isinstance(headroom, int | float) or not math.isfinite(headroom):
        return f"The headroom {headroom!r} is not a number; 1.25 is the default and 1.0 the least allowed."
    if headroom < 1.0:
        return f"The headroom is {headroom}; 1.0 is the least allowed, or a full-length request cannot fit."
    for name in ("context", "edge_limit", "disagg_buffer"):
        value = getattr(audit.rules, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value <= 0):
            return f"The declared {name} is {value!r}; it must be a positive number of tokens."
    return ""


def judge_coverage(audit: Audit, nodes: Sequence[NodePool], findings: Findings) -> None:
    """Was everything read that the verdict speaks of? An empty list of nodes never passes."""
    given_routers = routers(audit)
    workers = unlisted_workers(audit)
    if not nodes and given_routers:
        known = f"give its workers: {', '.join(workers)}" if workers else "give the URLs of its workers"
        findings.unknowns.append(f"only the router was given; {known}")
    elif not audit.nodes:
        findings.unknowns.append("no node was given, so no pool was read")
    elif workers and audit.complete:
        findings.unknowns.append(
            f"the router {given_routers[0].name} lists workers that were not read: {', '.join(workers)}"
        )
    elif workers:
        findings.warnings.append(f"the router also lists {', '.join(workers)}, which were not given")
    for role in missing_roles(audit):
        findings.unknowns.append(f"no {role} node of {audit.deployment} was read")
    findings.errors += wrong_roles(audit)
    findings.unknowns += (*contradictions(processes(audit)), *doubts(audit))


def judge_node(pool: NodePool, audit: Audit, findings: Findings) -> None:
    """One node: pool >= headroom x C, with every number known."""
    name, headroom = pool.node.name, audit.rules.headroom
    if pool.pool.value is None:
        findings.unknowns.append(f"{name} does not expose its KV pool ({pool.pool.source})")
    if pool.context.value is None:
        findings.unknowns.append(
            f"{name} does not expose its context length ({pool.context.source}); declare it with --context"
        )
    if pool.pool.value is None or pool.context.value is None:
        return
    required = required_tokens(headroom, pool.context.value)
    if pool.pool.value < required:
        findings.fails.append(
            f"the KV pool of {name} holds {thousands(pool.pool.value)} tokens, below the "
            f"{thousands(required)} required for requests of {thousands(pool.context.value)} "
            f"(headroom {headroom:g})"
        )
        return
    _judge_edge(pool, audit, findings)
    _judge_low_confidence(pool, findings)
    buffer = audit.rules.disagg_buffer
    if buffer is not None and pool.role != "unified" and buffer < pool.context.value:
        findings.fails.append(
            f"the declared transfer buffer holds {thousands(buffer)} tokens, below the "
            f"{thousands(pool.context.value)} that {name} accepts"
        )
    if pool.context.state.value == "declared" and not pool.facts.context.known:
        findings.warnings.append(f"the context of {name} is declared, not read from the process")
    reachable = pool.reachable(None)
    if reachable is not None and reachable < pool.context.value:
        findings.warnings.append(
            f"{name} itself refuses prompts from {thousands(pool.limit.value or reachable)} tokens on, "
            f"although {thousands(pool.context.value)} are announced"
        )


def _judge_edge(pool: NodePool, audit: Audit, findings: Findings) -> None:
    """A declared edge limit carries a pass only once it has been seen refusing; it is not needed
    where the pool holds the whole context anyway."""
    if pool.context.source != EDGE:
        return
    whole = effective_context(pool.facts, audit.rules.context)
    if whole.value is not None and (pool.pool.value or 0) >= required_tokens(
        audit.rules.headroom, whole.value
    ):
        return
    if audit.history is None:
        findings.unknowns.append("the edge limit has not been seen refusing (history not consulted)")
    elif not audit.history.edge_limit_seen_refusing:
        findings.unknowns.append("the edge limit has not been seen refusing: run the rejection check")


def _judge_low_confidence(pool: NodePool, findings: Findings) -> None:
    """An upper bound that happens to suffice proves nothing (vLLM's hybrid models overstate 4 x); an
    adapter that only doubts its number says so in a note."""
    if "low confidence" in pool.pool.source.lower():
        findings.unknowns.append(f"the pool of {pool.node.name} is only an upper bound ({pool.pool.source})")
    findings.warnings += [
        f"{pool.node.name}: {note}" for note in pool.facts.notes if "low confidence" in note.lower()
    ]


def grade(nodes: Sequence[NodePool], zone: tuple[int, int] | None) -> str:
    """*critical* when lengths reach a rejection path that leaks, or might on an unknown build."""
    if zone is None:
        return "high"
    from kvaudit.auditor.advisories.match import affects

    members = [node for node in nodes if node.role in (*DISAGGREGATED, "")]
    answers = [affects(INCIDENT, member.facts.engine, member.facts.version.value) for member in members]
    return "high" if all(answer is False for answer in answers) else "critical"


PROBE = PoolProbe()
