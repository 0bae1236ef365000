"""docs/architecture.md says what is there: its paths exist, its picture shows the floors that lint holds."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]


@pytest.mark.parametrize("wing", ["auditor", "server"])
def test_picture_shows_the_floors_of_the_contract(wing: str) -> None:
    (layers,) = (
        contract["layers"]
        for contract in CONTRACTS
        if contract["name"].lower().startswith(f"floors of the {wing}")
    )
    floors = [[name.rpartition(".")[2] for name in layer.split(" | ")] for layer in layers]
    (drawn,) = re.findall(rf"subgraph {wing}\[.*?\]\n +direction TB\n +(.*)\n", PAGE)
    assert [floor.split(" & ") for floor in drawn.split(" --> ")] == floors


def test_no_modules_need_each_other() -> None:
    """Not even under TYPE_CHECKING or inside functions, where a circle only hides."""
    structure = runpy.run_path(str(ROOT / "bench" / "structure.py"))
    files = [path for path in (ROOT / "kvaudit").rglob("*.py") if "migrations" not in path.parts]
    imports = structure["imports_of"]({structure["_module"](path): path for path in files})
    assert len(imports) > 500
    assert structure["circles_of"](imports) == []


def test_paths_that_it_names_exist() -> None:
    named = re.findall(
        r"`((?:kvaudit|auditor|server|lab|audits|fleet|tests|inquiries|checklists|templates|kit)/[\w/.]*)`",
        PAGE,
    )
    assert len(named) > 20
    roots = (ROOT, ROOT / "kvaudit", ROOT / "kvaudit" / "server", ROOT / "kvaudit" / "server" / "web")
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []
