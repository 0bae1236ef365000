"""``kvaudit probe``: the named checks against the given nodes and entry, without a database."""

from __future__ import annotations

import argparse
import asyncio
import sys
from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kvaudit.auditor import report, runner
from kvaudit.auditor.checks import ACTIVE, CHECKS, MODULES, PASSIVE, no_such
from kvaudit.auditor.checks.contract import NodeSeen
from kvaudit.auditor.commands import arguments as flags
from kvaudit.auditor.commands.adding_up import OF_A_NIGHT, added_up, evidence_of
from kvaudit.auditor.commands.state_file import StateFile, UnusableState
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
    add_flags(made)
    return made


def add_flags(made: flags.Parser) -> None:
    """What is asked, as whom and how much, as ``kvaudit probe`` and ``kvaudit qualify`` take it."""
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
        "--budget-minutes", type=_minutes, metavar="M", help="minutes that each active check may take"
    )
    active.add_argument(
        "--state",
        metavar="FILE",
        default="",
        help="keep trials, misses and live markers between runs in this file, and judge by all of 30 days",
    )
    active.add_argument(
        "--fixed", action="store_true", help="say in the --state file that what earlier runs found is mended"
    )
    active.add_argument(
        "--allow-boundary",
        action="store_true",
        help="prompts at the limit may be sent although the pool is small or unknown; naming a check says so too",
    )
    active.add_argument("--seed", type=int, help="repeat the draws of an earlier run")
    active.add_argument(
        "--dry-run", action="store_true", help="say what would be sent, send no prompt of a check"
    )


def _minutes(text: str) -> float:
    """A positive number of minutes, at most a day."""
    try:
        return flags.seconds(str(float(text) * 60)) / 60
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of minutes above 0") from None


def main(argv: Sequence[str]) -> int:
    """Run the checks; returns 0, 1, 2 or 3."""
    try:
        given = parser().parse_intermixed_args(list(argv))
        targets = chosen(given)
        checks = _checks(given, targets)
        state = state_of(given, targets)
        active = any(check in ACTIVE for check in checks)
        permission = permission_of(given, state, consent=_named(given)) if active else None
    except (flags.UsageError, UnusableState) as error:
        return flags.refuse(str(error), argv)
    if given.dry_run:
        return asyncio.run(dry_run(targets, checks, given, permission))
    try:
        document, spoken = asyncio.run(_probe(targets, checks, given, permission, state))
    except UnusableState as error:
        return flags.refuse(str(error), argv)
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


def _named(given: Namespace) -> bool:
    return given.allow_boundary or any(check in ACTIVE for check in given.checks)


def permission_of(given: Namespace, state: StateFile | None, *, consent: bool) -> Permission:
    """What the flags allow; markers of the state file's runs are looked for as well."""
    from kvaudit.auditor.prober import Permission

    return Permission(
        consent=consent,
        prompt_tokens=_tokens(given.budget),
        seed=given.seed,
        seconds=None if given.budget_minutes is None else given.budget_minutes * 60,
        earlier=state.markers(datetime.now(UTC)) if state is not None else (),
    )


def state_of(given: Namespace, targets: Sequence[Target]) -> StateFile | None:
    """The opened state file, None where none was given."""
    if not given.state:
        if given.fixed:
            raise flags.UsageError("--fixed is written into the state file; give --state FILE as well.")
        return None
    if len(targets) > 1:
        raise flags.UsageError("--state keeps what was found of one deployment; choose it with --deployment.")
    state = StateFile.opened(given.state, given.deployment or (targets[0].slug if given.target else ""))
    if given.fixed:
        state.note_fixed(datetime.now(UTC))
    return state


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


def budget_of(given: Namespace, permission: Permission | None) -> runner.Budget:
    return runner.Budget(
        seconds=_seconds(given, permission), connections=flags.CONNECTIONS, waited_for=given.timeout is None
    )


async def _probe(
    targets: Sequence[Target],
    checks: Sequence[str],
    given: Namespace,
    permission: Permission | None,
    state: StateFile | None,
) -> tuple[dict[str, Any], str]:
    """Every target in turn; without ``--json`` each result is printed when it is there."""
    nodes: list[NodeSeen] = []
    results: list[Result] = []
    for target in targets:
        run = runner.run(target, checks, budget=budget_of(given, permission), permission=permission)
        async for event in run:
            if isinstance(event, runner.NodeRead):
                nodes.append(event.node)
            elif isinstance(event, runner.CheckFinished):
                result = event.result if state is None else _with_earlier(event.result, state)
                results.append(result)
                if not given.json:
                    print(report.line(result.verdict, [result]), flush=True)
    if state is not None:
        state.add(results, datetime.now(UTC))
    document = report.build(", ".join(target.slug for target in targets), nodes, results)
    return document, ""


def _with_earlier(result: Result, state: StateFile) -> Result:
    now = datetime.now(UTC)
    runs = [*state.evidence, *filter(None, (evidence_of(result, now),))]
    return added_up(result, runs, now, decide=OF_A_NIGHT, fixes=state.fixes)


async def dry_run(
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
