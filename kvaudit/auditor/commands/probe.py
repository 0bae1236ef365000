"""``kvaudit probe``: the named checks against the given nodes and entry, without a database."""

from __future__ import annotations

import asyncio
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kvaudit.auditor import report, runner
from kvaudit.auditor.checks import ACTIVE, CHECKS, MODULES, PASSIVE, no_such
from kvaudit.auditor.checks.contract import NodeSeen
from kvaudit.auditor.commands import arguments as flags
from kvaudit.auditor.commands.target_arguments import chosen
from kvaudit.auditor.runner.reading import read_node
from kvaudit.auditor.targets import Target
from kvaudit.auditor.verdict import Result, Verdict

if TYPE_CHECKING:
    from kvaudit.auditor.prober import Permission

PASSIVE_DEFAULT = tuple(check for check in PASSIVE if CHECKS[check].probed)
"""Without names: every passive check that needs no history."""

ACTIVE_DEFAULT = tuple(check for check in ACTIVE if CHECKS[check].probed)
"""Without names but with an entry and a tenant's key: the checks of a nightly plan, gentlest first."""

ACTIVE_SECONDS = 4 * 3600.0


def parser() -> flags.Parser:
    """The flags of ``kvaudit probe``."""
    made = flags.Parser(
        prog="kvaudit probe",
        description="Runs checks against nodes, and as tenants through the entry, and prints one line per check as "
        "they end. Exit code: 0 pass, 1 fail, 2 inconclusive, 3 error.",
    )
    made.add_argument(
        "checks",
        nargs="*",
        metavar="CHECK",
        help=f"{', '.join(MODULES)}; without names {', '.join(PASSIVE_DEFAULT)}, and with an entry and keys also "
        f"{', '.join(ACTIVE_DEFAULT)}",
    )
    flags.add_target(made)
    made.set_defaults(timeout=None)
    active = made.add_argument_group("active checks")
    active.add_argument(
        "--entry", metavar="URL", default="", help="the URL that tenants use (router or node)"
    )
    active.add_argument(
        "--model", default="", help="the model's name in requests (default: as the node says)"
    )
    for tenant in ("a", "b"):
        active.add_argument(
            f"--tenant-{tenant}-key-env",
            metavar="NAME",
            default="",
            help=f"variable that holds tenant {tenant}'s key",
        )
        active.add_argument(
            f"--tenant-{tenant}-salt-env",
            metavar="NAME",
            default="",
            help=f"variable that holds the cache salt which tenant {tenant} sends",
        )
    active.add_argument(
        "--entry-sets-salts",
        action="store_true",
        help="the entry overwrites salts: another tenant's must not work",
    )
    active.add_argument("--budget", metavar="TOKENS", help="prompt tokens that each active check may spend")
    active.add_argument(
        "--allow-boundary",
        action="store_true",
        help="prompts at the limit may be sent although the pool is small or unknown; naming a check says so too",
    )
    active.add_argument("--seed", type=int, help="repeat the draws of an earlier run")
    active.add_argument(
        "--dry-run", action="store_true", help="say what would be sent, send no prompt of a check"
    )
    return made


def main(argv: Sequence[str]) -> int:
    """Run the checks; returns 0, 1, 2 or 3."""
    try:
        given = parser().parse_intermixed_args(list(argv))
        targets = chosen(given)
        checks = _checks(given, targets)
        permission = _permission(given) if any(check in ACTIVE for check in checks) else None
    except flags.UsageError as error:
        return flags.refuse(str(error), argv)
    if given.dry_run:
        return asyncio.run(_dry_run(targets, checks, given, permission))
    document, spoken = asyncio.run(_probe(targets, checks, given, permission))
    if not given.json:
        return int(document["exit_code"])
    return flags.speak(spoken, document, as_json=True)


def _checks(given: Namespace, targets: Sequence[Target]) -> tuple[str, ...]:
    for name in given.checks:
        if name not in MODULES:
            raise flags.UsageError(no_such(name))
    if given.checks:
        return tuple(dict.fromkeys(given.checks))
    askable = any(target.tenants for target in targets)
    return PASSIVE_DEFAULT + (ACTIVE_DEFAULT if askable else ())


def _permission(given: Namespace) -> Permission:
    from kvaudit.auditor.prober import Permission

    named = any(check in ACTIVE for check in given.checks)
    return Permission(
        consent=named or given.allow_boundary, prompt_tokens=_tokens(given.budget), seed=given.seed
    )


def _tokens(budget: str | None) -> int | None:
    if budget is None:
        return None
    digits = budget.replace(",", "").replace("_", "")
    if not digits.isdigit() or not 0 < len(digits) <= 15 or int(digits) == 0:
        raise flags.UsageError(f"--budget: {budget[:40]!r} is no number of tokens above 0.")
    return int(digits)


def _seconds(given: Namespace, permission: Permission | None) -> float:
    if given.timeout is not None:
        return float(given.timeout)
    return ACTIVE_SECONDS if permission is not None else 20.0


async def _probe(
    targets: Sequence[Target], checks: Sequence[str], given: Namespace, permission: Permission | None
) -> tuple[dict[str, Any], str]:
    """Every target in turn; without ``--json`` each result is printed when it is there."""
    nodes: list[NodeSeen] = []
    results: list[Result] = []
    budget = runner.Budget(
        seconds=_seconds(given, permission), connections=flags.CONNECTIONS, waited_for=given.timeout is None
    )
    for target in targets:
        run = runner.run(target, checks, budget=budget, permission=permission)
        async for event in run:
            if isinstance(event, runner.NodeRead):
                nodes.append(event.node)
            elif isinstance(event, runner.CheckFinished):
                results.append(event.result)
                if not given.json:
                    print(report.line(event.result.verdict, [event.result]), flush=True)
    document = report.build(", ".join(target.slug for target in targets), nodes, results)
    return document, ""


async def _dry_run(
    targets: Sequence[Target], checks: Sequence[str], given: Namespace, permission: Permission | None
) -> int:
    """What each active check would send. Reads the nodes and finds a way in (at most a few short
    prompts), sends no prompt of a check. Exit code 0 when every check could run, else 2."""
    from kvaudit.auditor import checks as registry
    from kvaudit.auditor.prober import CannotAsk, Permission, prober_for

    rows: list[dict[str, Any]] = []
    for target in targets:
        seen = [await read_node(node) for node in target.nodes]
        try:
            prober = await prober_for(target, seen, permission or Permission())
        except CannotAsk as problem:
            rows.append({"target": target.slug, "problem": str(problem)})
            continue
        for check in checks:
            if check in ACTIVE:
                asking: Any = registry.get(check)  # what sends prompts says how many
                plan = asking.plan(prober)
                rows.append(
                    {
                        "target": target.slug,
                        "check": check,
                        "requests": plan.requests,
                        "prompt_tokens": plan.prompt_tokens,
                        "seconds": round(plan.seconds),
                        "rounds": plan.rounds,
                        "note": plan.note,
                    }
                )
        await prober.aclose()
    if given.json:
        import orjson

        sys.stdout.write(orjson.dumps({"schema": "kvaudit.plan/1", "rows": rows}).decode() + "\n")
    else:
        for row in rows:
            print(_row(row))
    return Verdict.INCONCLUSIVE.exit_code if any("problem" in row for row in rows) else 0


def _row(row: dict[str, Any]) -> str:
    if "problem" in row:
        return f"{row['target']}: {row['problem']}"
    rounds = f", {row['rounds']} rounds" if row["rounds"] else ""
    note = f" ({row['note']})" if row["note"] else ""
    return (
        f"{row['check']:<12} {row['requests']:>7,} requests {row['prompt_tokens']:>13,} prompt tokens "
        f"about {row['seconds']:,} s{rounds}{note}"
    )
