"""``kvaudit lab matrix``: every faulty engine against every check, expected and found.

Runs on the virtual clock: each cell gets a fresh engine, the whole auditor (reading, runner, prober)
works in memory, and a time-out of five minutes costs nothing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import starmap
from multiprocessing import get_context
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
from kvaudit.lab.expectation import NOT_APPLICABLE, ROLL_UP, Expectation
from kvaudit.lab.expectations import ROWS
from kvaudit.lab.inprocess import InProcess, in_process

if TYPE_CHECKING:
    from kvaudit.auditor.prober import Permission

NODE_KEY = "sk-lab-node"
SECONDS = 7_200.0
"""Simulated seconds that one cell may take."""

LOAD = 110
"""Prompt tokens of the load for each token of the longest prompt: about 300 requests."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One check on one engine. ``found`` is "" where the check has nothing to ask; the summary says why."""

    row: str
    check: str
    expected: str
    found: str
    severity: str = ""
    summary: str = ""
    lacks: str = ""  # why the verdict is known to differ; "" where it must not
    healthy: bool = False  # nobody is harmed by this engine

    @property
    def counted(self) -> bool:
        return self.found != ""

    @property
    def agrees(self) -> bool:
        return not self.counted or self.found in self.expected.split("|")

    @property
    def open(self) -> bool:
        """It differs, and that is known."""
        return bool(self.lacks) and not self.agrees

    @property
    def wrong(self) -> bool:
        """It differs where it must not, or agrees where it is said to differ: then the mark has to go."""
        return self.counted and self.agrees is bool(self.lacks)

    @property
    def false_fail(self) -> bool:
        return self.healthy and self.found == "fail" and not self.agrees

    @property
    def mark(self) -> str:
        if not self.counted:
            return "n/a"
        if self.wrong:
            return "DIFF"
        return "open" if self.open else "ok"


def cells(rows: Sequence[Expectation], checks: Sequence[str], jobs: int = 1) -> Iterator[Cell]:
    """Run the matrix, ``jobs`` cells at a time, and yield them in order; checks that do not apply to the lab are
    yielded without a verdict."""
    asked = [(row, check) for row in rows for check in checks if check not in NOT_APPLICABLE]
    with ProcessPoolExecutor(jobs, get_context("spawn")) if jobs > 1 else nullcontext() as pool:
        results = (
            pool.map(run_cell, *zip(*asked, strict=True)) if pool and asked else starmap(run_cell, asked)
        )
        for row in rows:
            yield from _row(row, checks, results)


def _row(row: Expectation, checks: Sequence[str], results: Iterator[Result]) -> Iterator[Cell]:
    found: list[Verdict] = []
    for check in checks:
        if check in NOT_APPLICABLE:
            yield Cell(row.name, check, "", "", summary=NOT_APPLICABLE[check])
            continue
        result = next(results)
        found.append(result.verdict)
        said = result.verdict.value, result.severity, result.summary
        yield Cell(row.name, check, row.expects(check), *said, row.open.get(check, ""), row.healthy)
    if row.together and set(checks) >= set(registry.PASSIVE):
        together = "pass" if all(verdict is Verdict.PASS for verdict in found) else "not pass"
        lacks = (
            f"what its open checks lack: {', '.join(row.open)}"
            if row.open and together != row.together
            else ""
        )
        yield Cell(row.name, ROLL_UP, row.together, together, lacks=lacks)


def run_cell(row: Expectation, check: str) -> Result:
    """What ``check`` says of a fresh engine of ``row``; evidence is left behind."""
    return replace(run_virtual(_cell(row, check)), evidence=())


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
                permission=_permission(lab.deployment.config, check) if check in registry.ACTIVE else None,
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


def _permission(config: LabConfig, check: str) -> Permission:
    """Consent, a fixed draw, and for the load half of its requests: races of the lab are no rarer than one of
    twenty, and the load is half of the matrix's cost."""
    from kvaudit.auditor.prober import Permission

    pools = [config.pool(role) for role in (("unified",) if config.unified else ("prefill", "decode"))]
    tokens = LOAD * min(*pools, config.context_tokens) if check == "concurrency" else None
    return Permission(consent=True, seed=1, prompt_tokens=tokens)


def command(faults: Sequence[str], checks: Sequence[str], *, as_json: bool, jobs: int = 0) -> int:
    """Print the matrix; 1 when anything differs from what is expected. ``jobs`` 0 = one for each processor.
    ValueError for an unknown name."""
    known = {row.name: row for row in ROWS}
    for name in faults:
        if name not in known:
            raise ValueError(f"there is no matrix row called {name!r}; rows are {', '.join(known)}")
    for check in checks:
        if check not in registry.MODULES:
            raise ValueError(f"there is no check called {check!r}; checks are {', '.join(registry.MODULES)}")
    rows = [known[name] for name in faults] or list(ROWS)
    wanted = [check for check in registry.MODULES if check in checks] or list(registry.MODULES)
    aside = sys.stderr if as_json else sys.stdout  # a whole matrix takes minutes: say how far it is
    done: list[Cell] = []
    for cell in cells(rows, wanted, jobs or os.cpu_count() or 1):
        done.append(cell)
        print(*_shown(cell), sep="\n", file=aside, flush=True)
    counted = [cell for cell in done if cell.counted]
    wrong = sum(cell.wrong for cell in counted)
    oddities = [cell for cell in counted if cell.healthy]
    numbers = {
        "counted": len(counted),
        "different": wrong,
        "open": sum(cell.open for cell in counted),
        "healthy": len(oddities),
        "false_fails": sum(cell.false_fail for cell in oddities),
    }
    unasked = {check: NOT_APPLICABLE[check] for check in wanted if check in NOT_APPLICABLE}
    if as_json:
        listed = [
            asdict(cell) | {"agrees": cell.agrees, "counted": cell.counted, "open": cell.open}
            for cell in done
        ]
        print(
            json.dumps({"schema": "kvaudit.matrix/1", "cells": listed, **numbers, "not_applicable": unasked})
        )
    else:
        left = "".join(f"; not applicable: {check} ({why})" for check, why in unasked.items())
        print(f"{len(counted)} cells, {wrong} different from what is expected, {numbers['open']} open{left}")
        print(f"{len(oddities)} cells of healthy engines and oddities, {numbers['false_fails']} false fails")
    return 1 if wrong else 0


def _shown(cell: Cell) -> Iterator[str]:
    """The lines of a cell."""
    if not cell.counted:
        yield f"n/a  {cell.row:<27} {cell.check:<12} {cell.summary}"
        return
    graded = f" ({cell.severity})" if cell.severity else ""
    found = f"expected {cell.expected:<28} found {cell.found}{graded}"
    yield f"{cell.mark:<4} {cell.row:<27} {cell.check:<12} {found}"
    if cell.wrong and cell.agrees:
        yield f"     it is what is wanted now: take away the mark that it lacks {cell.lacks}"
    elif cell.wrong:
        yield f"     {cell.summary}"
    elif cell.open:
        yield f"     lacks {cell.lacks}"
