"""``kvaudit gate``: may these nodes take traffic? Pool and version, read from the running processes."""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvaudit.auditor import checks as registry
from kvaudit.auditor import report, runner
from kvaudit.auditor.checks import PASSIVE
from kvaudit.auditor.checks.contract import Audit, History, NodeSeen
from kvaudit.auditor.checks.node_coverage import naming_unread
from kvaudit.auditor.commands import arguments as flags
from kvaudit.auditor.commands.target_arguments import chosen
from kvaudit.auditor.readings import EngineFacts
from kvaudit.auditor.targets import Target
from kvaudit.auditor.verdict import Result, Verdict, roll_up, worse

CHECKS = registry.where("read_at_gate")
NOT_CONSULTED = "(history and quarantine not consulted)"
PAUSES = (0.5, 1.0, 2.0, 3.0)
"""Seconds between two attempts of ``--wait``; the last one repeats."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One audit of one target, complete."""

    target: Target
    nodes: tuple[NodeSeen, ...]
    results: tuple[Result, ...]

    @property
    def verdict(self) -> Verdict:
        return roll_up([result.verdict for result in self.results])


def parser() -> flags.Parser:
    """The flags of ``kvaudit gate``."""
    made = flags.Parser(
        prog="kvaudit gate",
        description="Reads pool and version of the given nodes and says whether they may take traffic. "
        "Exit code: 0 pass, 1 fail, 2 inconclusive, 3 error.",
    )
    flags.add_target(made)
    made.add_argument(
        "--wait",
        type=flags.seconds,
        default=0.0,
        metavar="S",
        help="start-up probe: try again for S seconds while a node is starting",
    )
    made.add_argument(
        "--also",
        action="append",
        default=[],
        choices=PASSIVE,
        metavar="CHECK",
        help="a further passive check",
    )
    server = made.add_argument_group("what only history knows")
    server.add_argument(
        "--server", metavar="URL", default="", help="ask this kvaudit as well; needs --deployment"
    )
    server.add_argument(
        "--token-env", metavar="NAME", default="", help="variable with the API token for --server"
    )
    return made


def main(argv: Sequence[str]) -> int:
    """Run the gate; returns 0, 1, 2 or 3."""
    try:
        given = parser().parse_args(list(argv))
        targets = chosen(given)
        consult = _server(given)
    except flags.UsageError as error:
        return flags.refuse(str(error), argv)
    checks = tuple(dict.fromkeys((*CHECKS, *given.also)))
    document, line = asyncio.run(_gate(targets, checks, given, consult))
    return flags.speak(line, document, as_json=given.json)


def _server(given: Namespace) -> Any:
    """The server to consult as (url, slug, token, CA file), or None."""
    if not given.server:
        if given.token_env:
            raise flags.UsageError("--token-env is the token for --server; give --server URL as well.")
        return None
    from kvaudit.auditor.commands.server_gate import server_of

    return server_of(given)


async def _gate(
    targets: Sequence[Target], checks: Sequence[str], given: Namespace, consult: Any
) -> tuple[dict[str, Any], str]:
    outcomes = [await audited(target, checks, seconds=given.timeout, wait=given.wait) for target in targets]
    nodes = [node for outcome in outcomes for node in outcome.nodes]
    results = [result for outcome in outcomes for result in outcome.results]
    slug = ", ".join(outcome.target.slug for outcome in outcomes)
    document = report.build(slug, nodes, results)
    verdict = Verdict.parse(document["verdict"])
    if consult is None:
        document["history"] = None
        return document, report.line(verdict, results, NOT_CONSULTED)
    from kvaudit.auditor.commands.server_gate import ask

    answer = await ask(consult, document)
    if answer.body.get("edge_limit_seen_refusing") is True:
        seen = answer.body.get("edge_limit")
        outcomes = [await _with_edge_seen(outcome, seen) for outcome in outcomes]
        results = [result for outcome in outcomes for result in outcome.results]
        document = report.build(slug, nodes, results)
        verdict = Verdict.parse(document["verdict"])
    final = worse(verdict, answer.verdict)
    document.update(verdict=final.value, exit_code=final.exit_code, history=answer.as_report())
    if answer.verdict is not Verdict.PASS and final is not verdict:
        return document, f"{final.value.upper()} history: {answer.summary}"
    return document, report.line(final, results, answer.summary)


async def _with_edge_seen(outcome: Outcome, seen: object) -> Outcome:
    """The same readings, judged with what the server knows: the declared edge limit does refuse.
    ``seen`` is the limit that it saw: one above ours lets through what our pool need not hold."""
    target = outcome.target
    limit = target.rules.edge_limit
    if limit is None or not isinstance(seen, int) or isinstance(seen, bool) or not 0 < seen <= limit:
        return outcome
    pool = registry.get("pool")
    audit = Audit(
        deployment=target.slug,
        nodes=outcome.nodes,
        rules=target.rules,
        history=History(edge_limit_seen_refusing=True),
        complete=target.complete,
        expected_roles=frozenset(node.role for node in target.nodes if node.role),
    )
    again = naming_unread(pool.judge(await pool.observe(audit), audit), audit)
    return replace(outcome, results=tuple(again if one.check == "pool" else one for one in outcome.results))


async def audited(target: Target, checks: Sequence[str], *, seconds: float, wait: float = 0.0) -> Outcome:
    """One audit, repeated for up to ``wait`` seconds while a node is still starting: refused, 503,
    or a pool that is not known yet. Never waits for a node that answered clearly."""
    until = time.monotonic() + wait
    attempt = 0
    while True:
        left = until - time.monotonic()
        budget = runner.Budget(
            seconds=seconds, node_seconds=min(10.0, seconds), connections=flags.CONNECTIONS
        )
        nodes, results = await runner.results(target, checks, budget=budget)
        outcome = Outcome(target, tuple(nodes), tuple(results))
        if left <= 0 or not starting(outcome):
            return outcome
        if attempt == 0:
            print(f"kvaudit: waiting up to {wait:g} s for a node to start ({target.slug})", file=sys.stderr)
        pause = PAUSES[min(attempt, len(PAUSES) - 1)]
        await asyncio.sleep(max(0.0, min(pause, left)))
        attempt += 1


def starting(outcome: Outcome) -> bool:
    """Whether waiting may change this outcome for the better."""
    if outcome.verdict in (Verdict.PASS, Verdict.FAIL):
        return False
    return any(
        node.transient if node.facts is None else node.facts.kind == "node" and _pool_may_come(node.facts)
        for node in outcome.nodes
    )


def _pool_may_come(facts: EngineFacts) -> bool:
    """An unknown pool may be told later, unless it is unknown because the number that is told bounds nothing."""
    return not facts.pool.known and all(rank.uniform is None for rank in facts.ranks)
