"""Measures of a result in readable form. They are plain JSON of any release, so the shape decides:
a reading shows its source, a list of objects becomes a table, an object a list of pairs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kvaudit.web.tables.readings import is_reading

MOST_ROWS = 200
_LABELS = {
    "pool_tokens": "KV pool, smallest (tokens)",
    "context_tokens": "Context (tokens)",
    "reachable_tokens": "Longest reachable request (tokens)",
    "headroom": "Headroom (× context)",
    "required_tokens": "Pool required (tokens)",
    "missing_tokens": "Missing (tokens)",
    "headroom_tokens": "Cost of the headroom (tokens)",
    "danger_zone": "Danger zone (prompt tokens)",
    "full_context_requests": "Full-context requests that fit at once",
    "edge_limit": "Edge limit (declared)",
    "scope": "Scope",
    "findings": "Findings",
    "warnings": "Warnings",
}
_WITHOUT = {  # what no value means where it does not mean that a reading failed
    "edge_limit": "none declared",
    "danger_zone": "none found",
    "changed_at": "never seen to change",
    "gate_completed_at": "never",
}
_FIRST_COLUMNS = ("name", "node", "id", "role", "engine", "version")


@dataclass(frozen=True, slots=True)
class Grid:
    """A list of objects. A cell is text, or a list of texts; ``left_out`` rows are not shown."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    left_out: int


@dataclass(frozen=True, slots=True)
class Measure:
    """``kind`` says what ``value`` is: reading, grid, pairs, list, moment, text or unknown."""

    label: str
    kind: str
    value: Any

    @property
    def wide(self) -> bool:
        """Whether it needs the whole width."""
        return self.kind in ("grid", "list")


def readable(measures: Mapping[str, Any]) -> list[Measure]:
    # PostgreSQL keeps no order of keys: those that have a name here come first, tables last.
    found = [_measure(name, measures[name]) for name in _LABELS if name in measures]
    found += [_measure(name, value) for name, value in sorted(measures.items()) if name not in _LABELS]
    return sorted(found, key=lambda measure: measure.wide)


def stored(measures: Mapping[str, Any]) -> str:
    """The measures as they are kept, as JSON to read."""
    return json.dumps(measures, indent=2, sort_keys=True, ensure_ascii=False, default=str)


def label(name: str) -> str:
    return _LABELS.get(name) or name.replace("_", " ").strip().capitalize() or "(no name)"


def absent(name: str) -> str:
    """What a measure without a value reads as."""
    return _WITHOUT.get(name, "unknown")


def _measure(name: str, value: Any) -> Measure:
    shown = label(name)
    if value is None:
        return Measure(shown, "text", _WITHOUT[name]) if name in _WITHOUT else Measure(shown, "unknown", "")
    if is_reading(value):
        return Measure(shown, "reading", value)
    if name.endswith("_at") and (moment := _moment(value)) is not None:
        return Measure(shown, "moment", moment)
    if name == "danger_zone" and isinstance(value, list) and len(value) == 2:
        return Measure(shown, "text", f"{text(value[0])} up to {text(value[1])}")
    if isinstance(value, Mapping):
        return Measure(shown, "pairs", [(str(key), text(item)) for key, item in value.items()])
    if _is_list(value) and value:
        if all(isinstance(item, Mapping) and not is_reading(item) for item in value):
            return Measure(shown, "grid", _grid(value))
        if any(isinstance(item, str) and " " in item for item in value):
            return Measure(shown, "list", [text(item) for item in value[:MOST_ROWS]])
    return Measure(shown, "text", text(value))


def _grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    shown = rows[:MOST_ROWS]
    names = {str(key) for row in shown for key in row}
    # A column in which every list and text is empty says nothing; one of unknowns says a lot.
    names -= {name for name in names if all(row.get(name, 0) in ("", [], {}) for row in shown)}
    columns = [name for name in _FIRST_COLUMNS if name in names]
    columns += sorted(names - set(columns))
    return Grid(
        columns=[label(column) for column in columns],
        rows=[[_cell(row.get(column)) for column in columns] for row in shown],
        left_out=max(0, len(rows) - MOST_ROWS),
    )


def _cell(value: Any) -> str | list[str]:
    if _is_list(value) and value and all(isinstance(item, Mapping) and len(item) == 2 for item in value):
        return ", ".join(" ".join(map(text, item.values())) for item in value)  # depth and whether found
    if _is_list(value) and any(isinstance(item, (Mapping, list)) or " " in str(item) for item in value):
        return [_entry(item) for item in value[:MOST_ROWS]]
    return text(value)


def _entry(item: Any) -> str:
    """A named thing within a cell by its name and what it came to; its other fields are in the JSON."""
    if isinstance(item, Mapping) and "id" in item and "title" in item:
        came_to = [text(item[name]) for name in ("outcome", "severity") if item.get(name)]
        return f"{item['id']}{_in_brackets(came_to)}: {item['title']}"
    return text(item)


def _in_brackets(words: Sequence[str]) -> str:
    return f" ({', '.join(words)})" if words else ""


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
        return "; ".join(f"{key}: {text(item)}" for key, item in value.items()) or "none"
    if _is_list(value):
        return ", ".join(text(item) for item in value) or "none"
    return str(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _moment(value: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None
