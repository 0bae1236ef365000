"""Moves the house into its three wings: ``python bench/_wings.py`` in a clean checkout, once.

Every module and every file of tests goes to its wing with ``git mv``; every import, dotted name and path in a
tracked text file follows. Names that are data (schemas, labels of keyed hashes, task names, the group of entry
points) stay: `tests/test_names_that_are_data.py` holds them. A branch that was begun before the move can run it
as well, and then merges without conflicts of place.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

AUDITOR = [
    "verdict",
    "readings",
    "transport",
    "text",
    "stats",
    "engines",
    "advisories",
    "checks",
    "prober",
    "targets",
    "fleetfile",
    "report",
    "runner",
    "commands",
]
SERVER = [
    "accounts",
    "fleet",
    "audits",
    "checklists",
    "incidents",
    "inquiries",
    "ledger",
    "notify",
    "web",
    "api",
    "ops",
    "broker",
    "clock",
    "disk",
]
WING = dict.fromkeys(AUDITOR, "auditor") | dict.fromkeys(SERVER, "server")
AUDITOR_TESTS = [
    "test_gate",
    "test_probe",
    "test_readings",
    "test_report",
    "test_runner",
    "test_targets",
    "test_verdict",
]
KEEP = {"CHANGELOG.md", "bench/_wings.py"}
TEXT = {".py", ".toml", ".md", ".html", ".yaml", ".yml", ".sh", ".txt", ".cfg", ".js", ".css", ""}

ROOMS = "|".join(WING)
# A dotted name of a module. Not: a schema (kvaudit.fleet/1), a task name in quotes, the group of entry points.
DOTTED = re.compile(rf"(?<![\w./-])kvaudit\.({ROOMS})\b(?!/\d)")
TASK = re.compile(r"""["']kvaudit\.\w+\.tasks\.\w+["']""")
DATA = re.compile(
    r"""b"kvaudit\.[^"]*"|salted_hmac\("[^"]*"|["']kvaudit\.commands["']|entry-points\."kvaudit\.commands"|"""
    r"""["']kvaudit\.\w+\.tasks\.\w+["']"""
)
PLAIN = re.compile(
    r"""^(?P<lead>.*?)from kvaudit import (?P<names>\w+(?: as \w+)?(?:, \w+(?: as \w+)?)*)(?P<rest>.*)$"""
)
PATH = re.compile(rf"(?<![\w.])kvaudit/({ROOMS})\b")
TEST_DOTTED = re.compile(rf"(?<![\w./-])tests\.({ROOMS}|lab)\b")
TEST_PATH = re.compile(rf"(?<![\w.])tests/({ROOMS})\b")
DEPTH = re.compile(r"(__file__\)(?:\.resolve\(\))?)(\.parents\[(\d+)\]|(?:\.parent){2,})")


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main() -> None:
    if git("status", "--porcelain").strip():
        sys.exit("The work tree is not clean: commit first.")
    moved = move()
    for name in git("ls-files").splitlines():
        path = ROOT / name
        if name in KEEP or name.startswith("bench/results/") or path.suffix not in TEXT or not path.is_file():
            continue
        try:
            before = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        after = rewritten(before)
        if name in moved and path.suffix == ".py":
            after = DEPTH.sub(deeper, after)
        if after != before:
            path.write_text(after, encoding="utf-8")
    git("add", "-A")


def move() -> set[str]:
    """Give every room its place; the paths that are one folder deeper now."""
    for wing in ("auditor", "server"):
        folder = ROOT / "kvaudit" / wing
        folder.mkdir(exist_ok=True)
        (ROOT / "tests" / wing).mkdir(exist_ok=True)
    for room, wing in WING.items():
        for parent in ("kvaudit", "tests"):
            for name in (room, f"{room}.py"):
                if git("ls-files", f"{parent}/{name}").strip():
                    git("mv", f"{parent}/{name}", f"{parent}/{wing}/{name}")
    for name in AUDITOR_TESTS:
        if (ROOT / "tests" / f"{name}.py").exists():
            git("mv", f"tests/{name}.py", f"tests/auditor/{name}.py")
    return {
        name for name in git("ls-files").splitlines() if re.match(r"(kvaudit|tests)/(auditor|server)/", name)
    }


def rewritten(text: str) -> str:
    lines = []
    for line in text.split("\n"):
        kept: list[str] = []

        def aside(found: re.Match[str], kept: list[str] = kept) -> str:
            kept.append(found.group())
            return f"\0{len(kept) - 1}\0"

        line = DATA.sub(aside, line)
        line = split_plain(line)
        line = DOTTED.sub(lambda found: f"kvaudit.{WING[found[1]]}.{found[1]}", line)
        line = PATH.sub(lambda found: f"kvaudit/{WING[found[1]]}/{found[1]}", line)
        line = TEST_DOTTED.sub(
            lambda found: f"tests.{WING[found[1]]}.{found[1]}" if found[1] in WING else found[0], line
        )
        line = TEST_PATH.sub(lambda found: f"tests/{WING[found[1]]}/{found[1]}", line)
        line = BY_PARTS.sub(lambda found: f'"{found[1]}" / "{WING[found[2]]}" / "{found[2]}"', line)
        for number, original in enumerate(kept):
            line = line.replace(f"\0{number}\0", original)
        lines.append(line)
    return "\n".join(lines)


BY_PARTS = re.compile(rf'"(kvaudit|tests)" / "({ROOMS})"')
"""Paths that tests put together."""


def split_plain(line: str) -> str:
    """``from kvaudit import checks, cli`` imports from each wing what lives there."""
    found = PLAIN.match(line)
    if not found:
        return line
    groups: dict[str, list[str]] = {}
    for name in found["names"].split(", "):
        wing = WING.get(name.split(" ")[0])
        groups.setdefault(f"kvaudit.{wing}" if wing else "kvaudit", []).append(name)
    lead, rest = found["lead"], found["rest"]
    parts = [f"from {package} import {', '.join(names)}" for package, names in groups.items()]
    if lead.strip():  # inside a string: one line stays one line
        return lead + "; ".join(parts) + rest
    return "\n".join(f"{lead}{part}{rest}" for part in parts)


def deeper(found: re.Match[str]) -> str:
    if found[3] is not None:
        level = int(found[3])
        return f"{found[1]}.parents[{level + 1}]" if level else found[0]
    return f"{found[1]}{found[2]}.parent"


if __name__ == "__main__":
    main()
