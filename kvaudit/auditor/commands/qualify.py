"""``kvaudit qualify``: is this build safe at its boundary? Asked before a replica takes traffic, when all that it
serves is ours: beside 95 % of other traffic no month would bring as much evidence as the minutes before it."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kvaudit.auditor import report, runner
from kvaudit.auditor.checks.contract import NodeSeen
from kvaudit.auditor.commands import arguments as flags
from kvaudit.auditor.commands import probe
from kvaudit.auditor.commands.adding_up import TO_QUALIFY, added_up, evidence_of
from kvaudit.auditor.commands.state_file import StateFile, UnusableState
from kvaudit.auditor.commands.target_arguments import chosen
from kvaudit.auditor.targets import Target, Tenant
from kvaudit.auditor.verdict import Result, Verdict

if TYPE_CHECKING:
    from kvaudit.auditor.prober import Permission

CHECK = "canary"


def parser() -> flags.Parser:
    """The flags of ``kvaudit qualify``."""
    made = flags.Parser(
        prog="kvaudit qualify",
        description="Plants markers at the boundary of a replica that takes no traffic, and says whether its build is "
        "qualified there: 20 effective trials, on all nodes given and in the state file. Each unified node is asked at "
        "its own address; a pair of prefill and decode through its --entry. Exit code: 0 pass, 1 fail, 2 inconclusive, "
        "3 error.",
    )
    probe.add_flags(made)
    made.add_argument(
        "--drained",
        action="store_true",
        help="it was taken out of traffic; without it, it has not taken any yet",
    )
    return made


def main(argv: Sequence[str]) -> int:
    """Ask every node; returns 0, 1, 2 or 3."""
    try:
        given = parser().parse_args(list(argv))
        whole = chosen(given)
        targets = [single for target in whole for single in singly(target)]
        state = probe.state_of(given, whole)
        permission = probe.permission_of(given, state, consent=True)
    except (flags.UsageError, UnusableState) as error:
        return flags.refuse(str(error), argv)
    permission = replace(permission, where="drained" if given.drained else "newcomer")
    if given.dry_run:
        return asyncio.run(probe.dry_run(targets, (CHECK,), given, permission))
    try:
        document, line = asyncio.run(_qualify(targets, given, permission, state))
    except UnusableState as error:
        return flags.refuse(str(error), argv)
    return flags.speak(line, document, as_json=given.json)


def singly(target: Target) -> tuple[Target, ...]:
    """One target a node, asked at its own address, or the whole target where it has an entry. Tenants are only names
    there: without keys they are made up beside the node's own."""
    if target.entry:
        return (_with_tenants(target),)
    return tuple(
        _with_tenants(replace(target, slug=f"{target.slug}, {node.name}", nodes=(node,), complete=False))
        for node in target.nodes
    )


def _with_tenants(target: Target) -> Target:
    if target.tenants:
        return target
    own = target.nodes[0].credentials
    return replace(
        target,
        tenants=tuple(
            Tenant(name, replace(own, headers=(*own.headers, ("X-Kvaudit-Tenant", name))))
            for name in ("qualifier-a", "qualifier-b")
        ),
    )


async def _qualify(
    targets: Sequence[Target], given: Namespace, permission: Permission, state: StateFile | None
) -> tuple[dict[str, Any], str]:
    nodes: list[NodeSeen] = []
    results: list[Result] = []
    for target in targets:
        seen, found = await runner.results(
            target, (CHECK,), budget=probe.budget_of(given, permission), permission=permission
        )
        nodes += seen
        results += found
    now = datetime.now(UTC)
    runs = [*(state.evidence if state else ()), *filter(None, (evidence_of(one, now) for one in results))]
    fixes = state.fixes if state else ()
    if state is not None:
        state.add(results, now)
    results = [_judged(added_up(one, runs, now, decide=TO_QUALIFY, fixes=fixes)) for one in results]
    document = report.build(", ".join(target.slug for target in targets), nodes, results)
    return document, report.line(Verdict.parse(document["verdict"]), results)


def _judged(result: Result) -> Result:
    """A run without evidence qualifies nothing, however it ended by itself."""
    if "accumulated" in result.measures or result.verdict is not Verdict.PASS:
        return result
    return replace(result, verdict=Verdict.INCONCLUSIVE, summary=f"It qualifies nothing: {result.summary}")
