"""Moves modules: ``python bench/_move.py MAPPING`` in a clean checkout.

A line of the mapping reads ``kvaudit.old.module kvaudit.new.module``; a module may become a package's member. Files
go with ``git mv``; ``from``-imports and dotted names in every tracked text file follow. What a name is bound to stays:
``from kvaudit.old import module`` becomes ``from kvaudit.new import name as module`` where the last word changes.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXT = {".py", ".toml", ".md", ".html", ".yaml", ".yml", ".sh", ".txt", ""}
PLAIN = re.compile(
    r"^(\s*)from (kvaudit[\w.]*|tests[\w.]*) import (\w+(?: as \w+)?(?:, \w+(?: as \w+)?)*)(\s*#.*)?$"
)


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main(mapping_file: str) -> None:
    if git("status", "--porcelain").strip():
        sys.exit("The work tree is not clean: commit first.")
    lines = Path(mapping_file).read_text(encoding="utf-8").splitlines()
    mapping = dict(line.split() for line in lines if line.strip() and not line.startswith("#"))
    for old, new in mapping.items():
        source, target = (ROOT / (name.replace(".", "/") + ".py") for name in (old, new))
        target.parent.mkdir(parents=True, exist_ok=True)
        git("mv", str(source), str(target))
    dotted = re.compile(
        r"(?<![\w./-])(" + "|".join(map(re.escape, sorted(mapping, key=len, reverse=True))) + r")\b"
    )
    for name in git("ls-files").splitlines():
        path = ROOT / name
        if path.suffix not in TEXT or not path.is_file() or name in ("CHANGELOG.md", "bench/_move.py"):
            continue
        before = path.read_text(encoding="utf-8")
        lines = (on_one_line(before, mapping) if path.suffix == ".py" else before).split("\n")
        after = "\n".join(rewritten(line, mapping, dotted) for line in lines)
        if after != before:
            path.write_text(after, encoding="utf-8")
    git("add", "-A")


def on_one_line(text: str, mapping: dict[str, str]) -> str:
    """Imports of several lines that name a moved module, on one line each (the formatter breaks them again)."""
    lines = text.split("\n")
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    for node in sorted(imports, key=lambda node: -node.lineno):
        if node.end_lineno == node.lineno or node.level:
            continue
        if not any(f"{node.module}.{name.name}" in mapping for name in node.names):
            continue
        names = ", ".join(f"{a.name} as {a.asname}" if a.asname else a.name for a in node.names)
        lead = lines[node.lineno - 1][: node.col_offset]
        lines[node.lineno - 1 : node.end_lineno] = [f"{lead}from {node.module} import {names}"]
    return "\n".join(lines)


def rewritten(line: str, mapping: dict[str, str], dotted: re.Pattern[str]) -> str:
    found = PLAIN.match(line)
    if found:
        lead, package, names, rest = found[1], found[2], found[3].split(", "), found[4] or ""
        moved = {
            name: mapping[f"{package}.{name.split(' ')[0]}"]
            for name in names
            if f"{package}.{name.split(' ')[0]}" in mapping
        }
        if moved:
            out = []
            kept = [name for name in names if name not in moved]
            if kept:
                out.append(f"{lead}from {mapping.get(package, package)} import {', '.join(kept)}{rest}")
            for name, new in moved.items():
                parent, _, last = new.rpartition(".")
                old, _, alias = name.partition(" as ")
                bound = alias or old
                out.append(
                    f"{lead}from {parent} import {last}{'' if bound == last else f' as {bound}'}{rest}"
                )
            return "\n".join(out)
    return dotted.sub(lambda match: mapping[match[1]], line)


if __name__ == "__main__":
    main(sys.argv[1])
