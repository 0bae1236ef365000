"""The source of the advisories is well formed, and what is shipped was compiled from it."""

from pathlib import Path

import pytest
import yaml

from kvaudit.auditor import checks as checks_of_this_build
from kvaudit.auditor.advisories import build
from kvaudit.auditor.advisories.load import COMPILED

SOURCE = build.SOURCE.read_text("utf-8")
ENTRIES = yaml.safe_load(SOURCE)["advisories"]


def test_shipped_file_is_the_compiled_source():
    assert build.compile_source(SOURCE) == COMPILED.read_bytes(), (
        "run python -m kvaudit.auditor.advisories.build"
    )


def test_every_entry_expects_only_known_checks():
    for entry in ENTRIES:
        checks = entry.get("checks", {})
        assert set(checks) <= set(checks_of_this_build.MODULES), entry["id"]
        # The version check may only be expected to fail where a range is known and content is at risk.
        decides = bool(entry.get("affected")) and entry["effect"] != "availability"
        assert (checks.get("version") == "fail") == decides, entry["id"]


def test_every_pool_of_the_list_is_there():
    ids = [entry["id"] for entry in ENTRIES]
    assert ids == sorted(ids)
    assert len(ids) == len(set(ids)) >= 49


def test_the_newest_releases_are_releases():
    with pytest.raises(ValueError, match="'latest' of vllm is no release"):
        build.compile_source('version: "1"\nnewest: {vllm: latest}\nadvisories: []\n')


def source(**changes):
    entry = {
        "id": "KVA-900",
        "engine": "sglang",
        "title": "x",
        "severity": "high",
        "effect": "content",
        "references": ["a#1"],
        "verified": "thread",
    }
    return yaml.safe_dump({"version": "1", "advisories": [{**entry, **changes}]})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"affected": "<oops"}, "no version range"),
        ({"pair": {"vllm": "0.26"}}, "no version range"),
        ({"severity": "bad"}, "severity must be one of"),
        ({"effect": "bad"}, "effect must be one of"),
        ({"verified": False}, "verified is missing"),  # YAML reads a bare no as false
        ({"title": ""}, "title is missing"),
        ({"conditions": [True]}, "conditions must be a list of texts"),
        ({"checks": {"pool": "maybe"}}, "checks must expect"),
        ({"affcted": ">=1"}, "unknown fields"),
    ],
)
def test_mistakes_are_named(changes, said):
    with pytest.raises(ValueError, match=f"KVA-900: .*{said}"):
        build.compile_source(source(**changes))


def test_an_id_is_used_once():
    doubled = yaml.safe_load(source())
    doubled["advisories"] *= 2
    with pytest.raises(ValueError, match="used twice"):
        build.compile_source(yaml.safe_dump(doubled))


def test_main_writes_and_reports(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(build, "COMPILED", tmp_path / "advisories.json")
    assert build.main() == 0
    assert (tmp_path / "advisories.json").read_bytes() == COMPILED.read_bytes()
    monkeypatch.setattr(build, "SOURCE", tmp_path / "missing.yaml")
    assert build.main() == 3
    assert "missing.yaml" in capsys.readouterr().err
