"""deploy/install.sh: nothing to do takes no time, and what is missing is a sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.server.ops.running import REPOSITORY


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the script, a requirement file, and nothing installed."""
    folder = tmp_path / "project"
    (folder / "deploy").mkdir(parents=True)
    shutil.copy(REPOSITORY / "deploy" / "install.sh", folder / "deploy")
    (folder / "requirements").mkdir()
    (folder / "pyproject.toml").write_text("")
    for name in ("server", "dev"):
        (folder / "requirements" / f"{name}.txt").write_text(f"{name}==1 --hash=sha256:0\n")
    return folder


def fake(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def install(project: Path, what: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{project / 'fakes'}{os.pathsep}/usr/bin{os.pathsep}/bin"
    return subprocess.run(
        [project / "deploy" / "install.sh", what],
        env={"PATH": path} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def installed(project: Path, name: str) -> None:
    """As if NAME had been installed: its stamp, a Python and the command."""
    for program in ("python", "kvaudit"):
        fake(
            project / ".venv" / "bin" / program,
            'case "$*" in *pip*) echo pip "$@" >> "$0.log";; esac; exit 0',
        )
    parts = [(project / "requirements" / f"{name}.txt").read_text(), (project / "pyproject.toml").read_text()]
    stamp = subprocess.run(["cksum"], input="".join(parts), capture_output=True, text=True, check=True).stdout
    (project / ".venv" / f"kvaudit-{name}.installed").write_text(stamp)


@pytest.mark.parametrize(("have", "want"), [("server", "server"), ("dev", "dev"), ("dev", "server")])
def test_what_is_there_is_not_installed_again(project: Path, have: str, want: str) -> None:
    installed(project, have)
    done = install(project, want)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (project / ".venv" / "bin" / "python.log").exists()


@pytest.mark.parametrize("changed", ["requirements/server.txt", "pyproject.toml"])
def test_a_change_is_installed_with_hashes_and_without_build_isolation(project: Path, changed: str) -> None:
    installed(project, "server")
    with (project / changed).open("a") as file:
        file.write("# another\n")
    assert install(project, "server").returncode == 0
    calls = (project / ".venv" / "bin" / "python.log").read_text()
    assert "install --quiet --require-hashes --no-deps -r requirements/server.txt" in calls
    assert "install --quiet --no-index --no-deps --no-build-isolation --editable ." in calls
    assert install(project, "server").stdout == "", "and only once"


def test_server_is_not_enough_for_dev(project: Path) -> None:
    installed(project, "server")
    assert "requirements/dev.txt" in install(project, "dev").stdout


def test_a_failed_install_is_not_taken_for_done(project: Path) -> None:
    installed(project, "server")
    (project / "pyproject.toml").write_text("# new\n")
    fake(project / ".venv" / "bin" / "python", 'case "$*" in *require-hashes*) exit 1;; esac; exit 0')
    done = install(project, "server")
    assert done.returncode == 1
    assert "kvaudit: the packages could not be installed" in done.stderr
    assert install(project, "server").returncode == 1


def test_no_python_that_is_new_enough(project: Path) -> None:
    for name in ("old", "python3", "python3.11", "python3.12", "python3.13", "python3.14"):
        fake(project / "fakes" / name, "exit 1")
    done = install(project, "server", PYTHON="old")
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed and old is not" in done.stderr


def test_a_python_without_venv(project: Path) -> None:
    fake(project / "fakes" / "python3", 'case "$*" in *ensurepip*) exit 1;; esac; exit 0')
    done = install(project, "server")
    assert done.returncode == 1
    assert "Python's venv module is missing: install it (Debian: apt-get install python3-venv)" in done.stderr
