"""Builds the wheel out of what git knows, and makes environments that hold it and what it declares, nothing else."""

from __future__ import annotations

import email
import importlib.metadata
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("kvaudit/", "templates/", "static/")
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")


def tracked() -> list[str]:
    """Every file of the repository that belongs to it, committed or not yet."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted({each for each in listed.split("\0") if each and (ROOT / each).is_file()})


def copy_sources(target: Path) -> None:
    """What a wheel is made of, away from the repository, where building leaves folders."""
    for name in tracked():
        if name.startswith(SOURCES) or name in FILES:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)


def build(folder: Path) -> Path:
    """The wheel, built without network by the pinned builder."""
    copy_sources(folder / "source")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(folder), str(folder / "source")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("kvaudit-*.whl")
    return found


def requires(wheel: Path) -> list[str]:
    """What the wheel says that it needs."""
    with ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []


def distributions(wheel: Path, extras: tuple[str, ...]) -> list[importlib.metadata.Distribution]:
    """What the wheel with these extras needs, and what that needs in turn, out of this environment."""
    found: dict[str, importlib.metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [("kvaudit", extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        if name == "kvaudit":
            lines = requires(wheel)
        else:
            found[name] = importlib.metadata.distribution(name)
            lines = found[name].requires or []
        for line in lines:
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(wanted.name), each) for each in ("", *wanted.extras)]
    return list(found.values())


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it, and an empty folder to work in."""

    python: Path
    folder: Path

    def environment(self, **variables: str) -> dict[str, str]:
        """Nothing of ours may reach it: neither the repository nor the tests' own variables."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
        return kept | {"HOME": str(self.folder)} | variables

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """``kvaudit ARGUMENTS``, by the script that the installation made."""
        return subprocess.run(
            [self.python.with_name("kvaudit"), *arguments],
            cwd=self.folder,
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,  # a deadline, for a busy machine
        )


def install(wheel: Path, extras: tuple[str, ...], folder: Path) -> Installed:
    """An environment of its own. Packages that the wheel declares are linked from this one, so that no network is
    needed and exactly the pinned versions are used; one that it forgot to declare is missing there."""
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    for distribution in distributions(wheel, extras):
        for top in {
            file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")
        }:
            link = site / top
            if not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))).resolve())
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    done = subprocess.run(
        [*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    work = folder / "elsewhere"
    work.mkdir()
    return Installed(python, work)
