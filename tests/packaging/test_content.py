"""What the wheel holds: every module and every data file of the repository, pages included, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from zipfile import ZipFile

from tests.packaging.wheel import ROOT, tracked


def _inside(name: str) -> str:
    """Where a file of the repository lies in the wheel; "" for what does not belong there."""
    for folder in ("templates/", "static/"):
        if name.startswith(folder):
            return f"kvaudit/_{name}"
    return name if name.startswith("kvaudit/") else ""


def test_the_wheel_holds_what_git_knows_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        held = {each for each in archive.namelist() if ".dist-info/" not in each}
        wanted = {_inside(name): name for name in tracked() if _inside(name)}
        forgotten = sorted(set(wanted) - held)
        assert not forgotten, "add their kind to package-data in pyproject.toml"
        assert sorted(held - set(wanted)) == []
        for inside, name in wanted.items():
            assert archive.read(inside) == (ROOT / name).read_bytes(), name


def test_there_is_something_of_each_kind(wheel: Path) -> None:
    """Else the comparison would pass by comparing nothing."""
    with ZipFile(wheel) as archive:
        held = set(archive.namelist())
    for name in (
        "kvaudit/auditor/text/words.txt",
        "kvaudit/auditor/advisories/advisories.json",
        "kvaudit/_templates/base.html",
        "kvaudit/_static/plotly/plotly-basic.min.js",
        "kvaudit/server/audits/migrations/0001_initial.py",
    ):
        assert name in held


def test_licences_go_with_it(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    assert any(re.fullmatch(r"kvaudit-[^/]+\.dist-info/licenses/LICENSE", name) for name in names)
    assert "kvaudit/_static/plotly/LICENSE.txt" in names
