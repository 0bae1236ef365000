"""The base installation has neither numpy nor scipy: what a check says there, and that a leak is a leak all the same."""

from __future__ import annotations

import ast
import asyncio
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from kvaudit.auditor import checks, runner
from kvaudit.auditor.stats import bounds
from kvaudit.auditor.verdict import Verdict

ROOT = Path(checks.__file__).parents[2]
EXTRA = {"numpy", "scipy"}
WITH_PACKAGES = {"prefill", "prefix"}


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing of kvaudit[stats] were installed."""
    for name in [*EXTRA, *(module for module in sys.modules if module.partition(".")[0] in EXTRA)]:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("check", sorted(WITH_PACKAGES))
@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (("numpy", "scipy"), "numpy and scipy, which are not installed here"),
        (("scipy",), "scipy, which is not installed here"),
    ],
)
def test_a_check_that_cannot_be_judged_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, check: str, gone: tuple[str, ...], said: str
) -> None:
    for name in gone:
        monkeypatch.setitem(sys.modules, name, None)
    nothing = cast(Any, None)  # neither target nor time is looked at
    result = asyncio.run(runner._check(check, nothing, nothing, nothing))
    assert result.verdict == Verdict.ERROR
    assert said in result.summary
    assert "kvaudit[stats]" in result.next
    assert "broke" not in result.summary


def _imports(path: Path) -> set[str]:
    """Every module that a file imports anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("check", checks.MODULES)
def test_a_check_names_the_packages_that_its_modules_reach(check: str) -> None:
    reached: set[str] = set()
    package = checks.describe(check).package or check
    waiting = {f"kvaudit.auditor.checks.{package}.probe"}
    while waiting:
        module = waiting.pop()
        if module in reached:
            continue
        reached.add(module)
        path = ROOT.parent / Path(*module.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                waiting |= {each for each in _imports(file) if each.partition(".")[0] in {"kvaudit", *EXTRA}}
    needed = {each.partition(".")[0] for each in reached} & EXTRA
    assert set(checks.describe(check).packages) == needed
    assert bool(needed) == (check in WITH_PACKAGES)


@pytest.mark.parametrize(("hits", "trials"), [(0, 5), (1, 20), (3, 20), (19, 20), (20, 20), (7, 4000)])
def test_a_leak_is_counted_without_them(base: None, hits: int, trials: int) -> None:
    """The canary states the rate of a leak that it repeated: with an import that fails, it would not be said at all."""
    low, high = bounds.interval(hits, trials)
    assert low <= hits / trials <= high
    assert hits / trials <= bounds.upper_bound(hits, trials) <= high
