"""``kvaudit probe``: the named checks against the given nodes, without a database."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from kvaudit import report
from kvaudit.checks import MODULES, PASSIVE
from kvaudit.commands import arguments as flags
from kvaudit.commands.gate import audited
from kvaudit.commands.given import chosen
from kvaudit.targets import Target
from kvaudit.verdict import Verdict

DEFAULT = ("pool", "version", "exposure")
"""Without names: every passive check that needs no history."""


def parser() -> flags.Parser:
    made = flags.Parser(
        prog="kvaudit probe",
        description="Runs checks against nodes and prints one line per check. "
        "Exit code: 0 pass, 1 fail, 2 inconclusive, 3 error.",
    )
    made.add_argument(
        "checks", nargs="*", metavar="CHECK", help=f"{', '.join(MODULES)}; without names {', '.join(DEFAULT)}"
    )
    flags.add_target(made)
    return made


def main(argv: Sequence[str]) -> int:
    """Run the checks; returns 0, 1, 2 or 3."""
    try:
        given = parser().parse_intermixed_args(list(argv))
        checks = _checks(given)
        targets = chosen(given)
    except flags.UsageError as error:
        return flags.refuse(str(error), argv)
    document, lines = asyncio.run(_probe(targets, checks, given))
    return flags.speak(lines, document, as_json=given.json)


def _checks(given: Namespace) -> tuple[str, ...]:
    for name in given.checks:
        if name not in PASSIVE:
            raise flags.UsageError(
                f"There is no check called {name[:40]!r}; the checks are {', '.join(PASSIVE)}."
            )
    return tuple(dict.fromkeys(given.checks)) or DEFAULT


async def _probe(
    targets: Sequence[Target], checks: Sequence[str], given: Namespace
) -> tuple[dict[str, Any], str]:
    outcomes = [await audited(target, checks, seconds=given.timeout) for target in targets]
    results = [result for outcome in outcomes for result in outcome.results]
    document = report.build(
        ", ".join(outcome.target.slug for outcome in outcomes),
        [node for outcome in outcomes for node in outcome.nodes],
        results,
    )
    lines = [report.line(Verdict.parse(result.verdict), [result]) for result in results]
    return document, "\n".join(lines)
