"""deploy/browser.sh: without a browser, a sentence; in CI, a failure."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.server.ops.running import REPOSITORY

SKIPPED, REFUSED = "so the browser tests are skipped", "in CI the browser tests may not be skipped"


def fakes(folder: Path, **programs: str) -> Path:
    """A folder that is all of PATH; each program is a shell script."""
    folder.mkdir()
    for name, script in programs.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    return folder


def run(path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", REPOSITORY / "deploy" / "browser.sh"],
        env={"PATH": str(path), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


NOBODY = {"id": "echo 1000", "sudo": "exit 1", "apt_get": "exit 0"}
SHAPES = {
    "no package manager": ({"id": "echo 0"}, {}),
    "no right to install": (NOBODY, {}),
    "no sudo": ({"id": "echo 1000", "apt_get": "exit 0"}, {}),
    "no index": ({"id": "echo 0", "apt_get": 'case "$*" in *update*) exit 100;; esac', "env": 'shift; exec "$@"'}, {}),
    "no such package": ({"id": "echo 0", "apt_get": 'case "$*" in *install*) exit 100;; esac', "env": 'shift; exec "$@"'}, {}),
    "one named that is not there": (NOBODY, {"KVAUDIT_CHROMIUM": "/nonexistent/chromium"}),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("ci", "code", "said"),
    [("true", 1, REFUSED), ("1", 1, REFUSED), ("", 0, SKIPPED), ("false", 0, SKIPPED)],
)
def test_a_missing_browser(tmp_path: Path, shape: str, ci: str, code: int, said: str) -> None:
    programs, variables = SHAPES[shape]
    done = run(fakes(tmp_path / "fakes", **programs), CI=ci, **variables)
    assert done.returncode == code, done.stderr
    assert said in done.stderr


@pytest.mark.parametrize("ci", ["true", ""])
def test_one_that_is_there_or_can_be_installed(tmp_path: Path, ci: str) -> None:
    there = run(fakes(tmp_path / "there", chromium="exit 0"), CI=ci)
    assert (there.returncode, there.stdout, there.stderr) == (0, "", "")
    named = fakes(tmp_path / "named", mine="exit 0")
    assert run(named, CI=ci, KVAUDIT_CHROMIUM=str(named / "mine")).returncode == 0
    installs = {"id": "echo 0", "apt_get": "exit 0", "env": 'shift; exec "$@"'}
    installed = run(fakes(tmp_path / "installs", **installs), CI=ci)
    assert installed.returncode == 0
    assert "installing Chromium" in installed.stdout
