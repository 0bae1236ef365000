"""The pinned files: every package with hashes, no registry named, nothing of pyproject.toml forgotten."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {"server": ("server", "stats", "lab", "build"), "dev": ("server", "stats", "lab", "build", "dev")}


def pinned(name: str) -> dict[str, str]:
    """Package -> exact version."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return {
        canonicalize_name(found[1]): found[2]
        for found in re.finditer(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", text, re.MULTILINE)
    }


@pytest.mark.parametrize("name", EXTRAS)
def test_no_address_of_a_registry(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert "://" not in text
    assert not re.search(
        r"^\s*-", re.sub(r"^\s*--hash=sha256:[0-9a-f]{64}( \\)?$", "", text, flags=re.MULTILINE), re.M
    )


@pytest.mark.parametrize("name", EXTRAS)
def test_every_package_has_an_exact_version_and_hashes(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    entries = re.split(r"\n(?=[A-Za-z])", text.strip())
    assert len(entries) > 30
    for entry in entries:
        assert re.match(r"[A-Za-z0-9._-]+(\[[^\]]*\])?==\S+", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


@pytest.mark.parametrize("name", EXTRAS)
def test_every_dependency_is_pinned_within_its_bounds(name: str) -> None:
    versions = pinned(name)
    wanted = [*PROJECT["dependencies"]]
    for extra in EXTRAS[name]:
        wanted += PROJECT["optional-dependencies"][extra]
    for line in wanted:
        requirement = Requirement(line)
        package = canonicalize_name(requirement.name)
        assert package in versions, f"{line}: run make requirements"
        assert requirement.specifier.contains(versions[package], prereleases=True), (
            f"{line}: run make requirements"
        )


def test_both_files_agree() -> None:
    dev = pinned("dev")
    for package, version in pinned("server").items():
        assert dev[package] == version
