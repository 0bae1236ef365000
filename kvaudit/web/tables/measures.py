"""Measures of a result in readable form. They are plain JSON of any release, so the shape decides:
a reading shows its source, a list of objects becomes a table, an object a list of pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvaudit.web.tables.readings import is_reading

MOST_ROWS = 200
_LABELS = {
    "pool_tokens": "KV pool, smallest (tokens)",
    "context_tokens": "Context (tokens)",
    "reachable_tokens": "Longest reachable request (tokens)",
    "headroom": "Headroom (× context)",
    "danger_zone": "Danger zone (prompt tokens, from / up to)",
    "full_context_requests": "Full-context requests that fit at once",
    "nodes": "Nodes",
}


@dataclass(frozen=True, slots=True)
class Grid:
    """A list of objects: ``left_out`` rows are not shown."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    left_out: int


@dataclass(frozen=True, slots=True)
class Measure:
    """Exactly one of reading, grid, pairs and text is used, by ``kind``."""

    label: str
    kind: str
    value: Any


def readable(measures: Mapping[str, Any]) -> list[Measure]:
    # PostgreSQL keeps no order of keys: those that have a name here come first, tables last.
    found = [_measure(label(name), measures[name]) for name in _LABELS if name in measures]
    found += [_measure(label(name), value) for name, value in sorted(measures.items()) if name not in _LABELS]
    return sorted(found, key=lambda measure: measure.kind == "grid")


def label(name: str) -> str:
    return _LABELS.get(name) or name.replace("_", " ").strip().capitalize() or "(no name)"


def _measure(name: str, value: Any) -> Measure:
    if is_reading(value):
        return Measure(name, "reading", value)
    if isinstance(value, Mapping):
        return Measure(name, "pairs", [(label(str(key)), text(item)) for key, item in value.items()])
    if isinstance(value, Sequence) and not isinstance(value, str):
        if value and all(isinstance(item, Mapping) and not is_reading(item) for item in value):
            return Measure(name, "grid", _grid(value))
        return Measure(name, "text", ", ".join(text(item) for item in value) or "none")
    return Measure(name, "unknown" if value is None else "text", text(value))


def _grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    columns = list(dict.fromkeys(str(key) for row in rows[:MOST_ROWS] for key in row))
    return Grid(
        columns=[label(column) for column in columns],
        rows=[[text(row.get(column)) for column in columns] for row in rows[:MOST_ROWS]],
        left_out=max(0, len(rows) - MOST_ROWS),
    )


def text(value: Any) -> str:
    """One value in one line; nested structures in brief."""
    if is_reading(value):
        return "unknown" if value["value"] is None else text(value["value"])
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, Mapping):
        return "; ".join(f"{label(str(key))}: {text(item)}" for key, item in value.items()) or "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(text(item) for item in value) or "none"
    return str(value)
