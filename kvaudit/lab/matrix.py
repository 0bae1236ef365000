"""``kvaudit lab matrix``: every faulty engine against every check, expected and found.

Runs on the virtual clock: each cell gets a fresh engine, the whole auditor (reading, runner, prober)
works in memory, and a time-out of five minutes costs nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kvaudit.auditor import checks as registry
from kvaudit.auditor import runner
from kvaudit.auditor.checks.contract import History, NodeSeen, Rules
from kvaudit.auditor.readings import fingerprint
from kvaudit.auditor.runner.reading import read_node
from kvaudit.auditor.targets import Credentials, Node, Target, Tenant
from kvaudit.auditor.verdict import Result, Verdict
from kvaudit.lab.clock import run_virtual
from kvaudit.lab.config import LabConfig
from kvaudit.lab.deployment import with_options
from kvaudit.lab.expectations import NOT_APPLICABLE, ROWS, Expectation
from kvaudit.lab.inprocess import InProcess, in_process

if TYPE_CHECKING:
    from kvaudit.auditor.prober import Permission

NODE_KEY = "sk-lab-node"
SECONDS = 7_200.0
"""Simulated seconds that one cell may take."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One check on one engine. ``found`` is "" where the check has nothing to ask; the summary says why."""

    row: str
    check: str
    expected: str
    found: str
    severity: str = ""
    summary: str = ""

    @property
    def counted(self) -> bool:
        return self.found != ""

    @property
    def agrees(self) -> bool:
        return not self.counted or self.found in self.expected.split("|")


def cells(rows: Sequence[Expectation], checks: Sequence[str]) -> Iterator[Cell]:
    """Run the matrix, cell by cell; checks that do not apply to the lab are yielded without a verdict."""
    for row in rows:
        found: list[Verdict] = []
        for check in checks:
            if check in NOT_APPLICABLE:
                yield Cell(row.name, check, "", "", summary=NOT_APPLICABLE[check])
                continue
            result = run_virtual(_cell(row, check))
            found.append(result.verdict)
            yield Cell(
                row.name, check, row.expects(check), result.verdict.value, result.severity, result.summary
            )
        if row.roll_up and set(checks) >= set(registry.PASSIVE):
            together = "pass" if all(verdict is Verdict.PASS for verdict in found) else "not pass"
            yield Cell(row.name, "(roll-up)", row.roll_up, together)


async def _cell(row: Expectation, check: str) -> Result:
    config = with_options(LabConfig(node_key=NODE_KEY), **row.options)
    async with in_process(config, row.faults) as lab:
        with lab.joined():
            target = target_of(lab, row)
            history = await _history(lab, target, row)
            found = None
            run = runner.run(
                target,
                [check],
                budget=runner.Budget(seconds=SECONDS),
                history=history,
                permission=_permission() if check in registry.ACTIVE else None,
            )
            async for event in run:
                if isinstance(event, runner.CheckFinished):
                    found = event.result
    assert found is not None, "the runner gives one result per check"
    return found


def target_of(lab: InProcess, row: Expectation) -> Target:
    """The deployment as an operator would declare it: complete, with consent and two tenants."""
    config = lab.deployment.config
    headers = (("Authorization", f"Bearer {config.node_key}"),) if config.node_key else ()
    nodes = tuple(
        Node(node.role, url, node.role, credentials=Credentials(headers))
        for node, url in zip(lab.deployment.nodes, lab.node_urls, strict=True)
    )
    tenants = tuple(
        Tenant(tenant.name, Credentials((("Authorization", f"Bearer {tenant.key}"),)))
        for tenant in config.tenants
    )
    return Target(
        f"lab-{row.name}",
        nodes,
        entry=lab.entry,
        model=config.model,
        tenants=tenants,
        rules=Rules(conditions={}),
        complete=True,
        consent=True,
        entry_sets_salts=True,
    )


async def _history(lab: InProcess, target: Target, row: Expectation) -> History:
    """A deployment whose gate completed a while ago on the configuration that was read then."""
    seen: list[NodeSeen] = [await read_node(node) for node in target.nodes]
    previous = {node.name: fingerprint(node.facts) for node in seen if node.facts is not None}
    for number in range(row.requests_between):
        body = {"model": target.model, "prompt": f"{number} ordinary traffic", "max_tokens": 1}
        await lab.deployment.router.route("tenant-a", "/v1/completions", body)
    return History(gate_completed_at=datetime.now(UTC) - timedelta(hours=1), previous=previous)


def _permission() -> Permission:
    from kvaudit.auditor.prober import Permission

    return Permission(consent=True, seed=1)


def command(faults: Sequence[str], checks: Sequence[str], *, as_json: bool) -> int:
    """Print the matrix; 1 when anything differs from what is expected. ValueError for an unknown name."""
    known = {row.name: row for row in ROWS}
    for name in faults:
        if name not in known:
            raise ValueError(f"there is no matrix row called {name!r}; rows are {', '.join(known)}")
    for check in checks:
        if check not in registry.MODULES:
            raise ValueError(f"there is no check called {check!r}; checks are {', '.join(registry.MODULES)}")
    rows = [known[name] for name in faults] or list(ROWS)
    wanted = [check for check in registry.MODULES if check in checks] or list(registry.MODULES)
    done: list[Cell] = []
    for cell in cells(rows, wanted):
        done.append(cell)
        aside = sys.stderr if as_json else sys.stdout  # a whole matrix takes minutes: say how far it is
        if not cell.counted:
            print(f"n/a  {cell.row:<20} {cell.check:<12} {cell.summary}", file=aside)
        else:
            mark = "ok  " if cell.agrees else "DIFF"
            graded = f" ({cell.severity})" if cell.severity else ""
            print(
                f"{mark} {cell.row:<20} {cell.check:<12} expected {cell.expected:<28} found {cell.found}{graded}",
                file=aside,
            )
            if not cell.agrees:
                print(f"     {cell.summary}", file=aside)
            aside.flush()
    wrong = [cell for cell in done if not cell.agrees]
    counted = sum(cell.counted for cell in done)
    unasked = [check for check in wanted if check in NOT_APPLICABLE]
    if as_json:
        document = {
            "schema": "kvaudit.matrix/1",
            "cells": [asdict(cell) | {"agrees": cell.agrees, "counted": cell.counted} for cell in done],
            "counted": counted,
            "different": len(wrong),
            "not_applicable": {check: NOT_APPLICABLE[check] for check in unasked},
        }
        print(json.dumps(document))
    else:
        left = "".join(f"; not applicable: {check} ({NOT_APPLICABLE[check]})" for check in unasked)
        print(f"{counted} cells, {len(wrong)} different from what is expected{left}")
    return 1 if wrong else 0
