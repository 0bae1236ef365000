"""What the pages promise is there: their links, the commands they name, and a page for every check."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvaudit import cli
from kvaudit.auditor import checks
from kvaudit.lab.expectations import ROWS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").glob("*.md")],
)
BUILT_OTHERWISE = {"up", "ledger", "backup", "restore"}  # commands of other floors, found by entry point
HOSTS = [
    ".".join(parts)
    for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"))
]
TEXT = {".py", ".md", ".txt", ".toml", ".yml", ".yaml", ".sh", ".html", ".js", ".css", ".json", ""}


def test_the_glossary_is_sorted_and_names_what_is_there() -> None:
    rows = re.findall(
        r"^\| ([^|]+) \| (.+) \|$", (ROOT / "docs" / "glossary.md").read_text("utf-8"), flags=re.M
    )
    words = [word for word, _ in rows if word not in ("word", "---")]
    assert words == sorted(words, key=str.casefold)
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "kvaudit").rglob("*.py"))
    named = re.findall(r"`(?:\w+\.)*([A-Z]\w*[a-z]\w*)`", " ".join(meaning for _, meaning in rows))
    assert len(named) > 10
    missing = [name for name in named if not name.startswith("X") and not re.search(rf"\b{name}\b", code)]
    assert missing == []


def test_links_lead_somewhere() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in PAGES
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8"))
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert missing == []


def test_commands_that_pages_name_exist() -> None:
    named = {}
    for page in PAGES:
        text = page.read_text("utf-8")
        found = re.findall(r"(?:`|bin/|^ {4})kvaudit ([a-z]+)\b", text, flags=re.M)
        for block in re.findall(r"```sh\n(.*?)```", text, flags=re.S):
            found += re.findall(r"^kvaudit ([a-z]+)", block, flags=re.M)
        named |= dict.fromkeys(found, str(page.relative_to(ROOT)))
    assert set(named) > {"gate", "probe"}, "they are found"
    unknown = set(named) - {*cli.GROUND_FLOOR, *BUILT_OTHERWISE}
    assert {command: named[command] for command in unknown} == {}


@pytest.mark.parametrize("check", checks.MODULES)
def test_every_check_has_its_page_its_tests_and_a_fault_that_it_catches(check: str) -> None:
    passive = (ROOT / "docs" / "checks.md").read_text("utf-8")
    if check in checks.PASSIVE:
        assert f"## `{check}`" in passive
    else:
        assert len((ROOT / "docs" / "active" / f"{check}.md").read_text("utf-8")) > 400
    assert (ROOT / "tests" / "auditor" / "checks" / f"test_{check}.py").exists()
    # the lab's engines have no session API: that check catches the faults of a service of its own
    caught = check == "session" or any("fail" in row.expects(check).split("|") for row in ROWS)
    assert caught


def test_no_file_names_the_host_of_a_package_registry() -> None:
    folders = ("bench", "deploy", "docs", "kvaudit", "requirements", "static", "templates", "tests", ".ci")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    files += [path for path in ROOT.iterdir() if path.name != "uv.lock"]
    found = [
        str(path.relative_to(ROOT))
        for path in files
        if path.is_file() and path.suffix in TEXT and "__pycache__" not in path.parts
        for text in [path.read_text("utf-8", errors="replace")]
        if any(host in text for host in HOSTS)
    ]
    assert found == []
