"""One thing has one word (docs/glossary.md): what was renamed does not come back on a page, in a message or in the docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RETIRED = {
    r"\bAudit now\b": "Run passive checks",
    r"\bAudit with prompts\b": "Run active checks",
    r"\bActive probes?\b": "Active checks",
    r"\bAsk again by hand\b": "Reproduce in a terminal",
    r"\bStanding\b": "Status",
    r"\bAt risk:": "a tier: Leak confirmed, Unsafe",
    r"\b(is|are) at risk\b": "a tier: Leak confirmed, Unsafe",
    r"\bnobody is told\b": "Alerts are off",
    r"\bshould have caught it and did not\b(?!\))": "Detection gaps",
    r"\bneeded of each other\b": "How the causes combined",
    r"\bVoid requests\b": "Invalid requests (excluded)",
    r"\bExposure of \{": "Exposure report of",
    r"\bMay a node take traffic\?": "Deployment gate (as a link; the page asks the question)",
}
HISTORY = ("docs/decisions", "docs/first-walk.md", "CHANGELOG.md")
"""What was said then stays."""
ALLOWED = {
    ("kvaudit/server/web/deployment/gate", r"\bMay a node take traffic\?"),
    ("templates/deployment/gate.html", r"\bMay a node take traffic\?"),
}


def templates() -> Iterator[tuple[str, str]]:
    """What is between the tags, and the texts of attributes."""
    for path in (ROOT / "templates").rglob("*.html"):
        shown = re.sub(r"\{#.*?#\}|\{%.*?%\}", " ", path.read_text("utf-8"), flags=re.S)
        yield path.relative_to(ROOT).as_posix(), re.sub(r"\s+", " ", shown)


def pages() -> Iterator[tuple[str, str]]:
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(HISTORY):
            yield name, re.sub(r"\s+", " ", path.read_text("utf-8"))


def messages() -> Iterator[tuple[str, str]]:
    """Every text of the code that is no docstring."""
    for path in (ROOT / "kvaudit").rglob("*.py"):
        if "migrations" in path.parts:
            continue
        tree = ast.parse(path.read_text("utf-8"))
        alone = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
                yield f"{path.relative_to(ROOT).as_posix()}:{node.lineno}", node.value


def offenders(texts: Iterator[tuple[str, str]]) -> list[str]:
    return [
        f"{where}: {found[0]!r} is called {now!r}"
        for where, text in texts
        for word, now in RETIRED.items()
        if (found := re.search(word, text))
        and not any(where.startswith(place) and word == allowed for place, allowed in ALLOWED)
    ]


def test_retired_words_stay_away() -> None:
    found = {"templates": [*templates()], "docs": [*pages()], "messages": [*messages()]}
    assert len(found["templates"]) > 100
    assert len(found["docs"]) > 20
    assert len(found["messages"]) > 5_000
    assert {name: bad for name, texts in found.items() if (bad := offenders(iter(texts)))} == {}


def test_the_scan_sees_what_it_is_for() -> None:
    assert offenders(iter([("templates/x.html", "<th>Standing</th>"), ("y", "an outstanding one")])) == [
        "templates/x.html: 'Standing' is called 'Status'"
    ]
