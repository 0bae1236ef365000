"""Compiles ``advisories.yaml`` to ``advisories.json``: ``python -m kvaudit.auditor.advisories.build``.

Parsing YAML costs more than the whole gate, so the compiled file is what is shipped and read. A test
proves that the two agree.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvaudit.auditor.advisories.load import COMPILED
from kvaudit.auditor.advisories.versions import parse_build, parse_range

SOURCE = Path(__file__).with_name("advisories.yaml")

REQUIRED = ("id", "engine", "title", "severity", "effect", "references", "verified")
OPTIONAL = (
    "pair",
    "affected",
    "fixed_in",
    "conditions",
    "circumstances",
    "date",
    "remedy",
    "note",
    "checks",
)
SEVERITIES = ("critical", "high", "medium", "low", "unknown")
EFFECTS = ("content", "integrity", "side channel", "access", "availability")
VERIFIED = ("reproduced", "source", "advisory", "thread", "press", "unverified")
EXPECTED = ("pass", "fail", "inconclusive", "error", "warn")


def compile_source(text: str) -> bytes:
    """The YAML source as compiled JSON; ValueError names the entry and what is wrong with it."""
    import json

    import yaml

    source = yaml.safe_load(text)
    if not isinstance(source, dict) or set(source) - {"newest"} != {"version", "advisories"}:
        raise ValueError("the source must hold version, advisories and the newest releases, and nothing else")
    for name, release in (source.get("newest") or {}).items():
        if parse_build(release).kind not in ("release", "candidate"):
            raise ValueError(f"newest: {release!r} of {name} is no release")
    seen: set[str] = set()
    for entry in source["advisories"]:
        problem = _problem(entry, seen)
        if problem:
            raise ValueError(f"{entry.get('id', 'an entry without id')}: {problem}")
        seen.add(entry["id"])
    return (json.dumps(source, ensure_ascii=False, indent=0, sort_keys=True) + "\n").encode()


def _problem(entry: Mapping[str, Any], seen: set[str]) -> str:
    for name in REQUIRED:
        if not entry.get(name):
            return f"{name} is missing"
    unknown = set(entry) - {*REQUIRED, *OPTIONAL}
    if unknown:
        return f"unknown fields {sorted(unknown)}"
    if entry["id"] in seen:
        return "the id is used twice"
    for name, allowed in (("severity", SEVERITIES), ("effect", EFFECTS), ("verified", VERIFIED)):
        if entry[name] not in allowed:
            return f"{name} must be one of {', '.join(allowed)}"
    for name in ("references", "conditions", "circumstances"):
        if not all(isinstance(item, str) for item in entry.get(name, [])):
            return f"{name} must be a list of texts"
    try:
        for text in (entry.get("affected"), *(entry.get("pair") or {}).values()):
            if text:
                parse_range(text)
    except ValueError as problem:
        return str(problem)
    if not set((entry.get("checks") or {}).values()) <= set(EXPECTED):
        return f"checks must expect one of {', '.join(EXPECTED)}"
    return ""


def main() -> int:
    """Writes the compiled file; 0, or 3 with the sentence that says what is wrong."""
    try:
        compiled = compile_source(SOURCE.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        sys.stderr.write(f"{SOURCE}: {problem}\n")
        return 3
    COMPILED.write_bytes(compiled)
    sys.stdout.write(f"{COMPILED} written, {len(compiled):,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
