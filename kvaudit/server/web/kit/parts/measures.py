"""Measures of a result in readable form. They are plain JSON of any release, so the shape decides:
a reading shows its source, a list of objects becomes a table, an object a list of pairs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kvaudit.server.web.kit.parts.measure_names import COLUMNS, FIRST_COLUMNS, LABELS, PAIRS, WITHOUT, written
from kvaudit.server.web.kit.parts.readings import is_reading

MOST_ROWS = 200
LONG = 12
"""Rows above which a table opens on demand."""


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

    @property
    def folded(self) -> bool:
        return isinstance(self.value, Grid) and len(self.value.rows) > LONG


def readable(measures: Mapping[str, Any]) -> list[Measure]:
    # PostgreSQL keeps no order of keys: those that have a name here come first, tables last.
    found = [_measure(name, measures[name]) for name in LABELS if name in measures]
    found += [_measure(name, value) for name, value in sorted(measures.items()) if name not in LABELS]
    return sorted(found, key=lambda measure: measure.wide)


def stored(measures: Mapping[str, Any]) -> str:
    """The measures as they are kept, as JSON to read."""
    return json.dumps(measures, indent=2, sort_keys=True, ensure_ascii=False, default=str)


def label(name: str) -> str:
    return LABELS.get(name) or name.replace("_", " ").strip().capitalize() or "(no name)"


def absent(name: str) -> str:
    """What a measure without a value reads as."""
    return WITHOUT.get(name, "unknown")


def _measure(name: str, value: Any) -> Measure:
    shown = label(name)
    if value is None:
        return Measure(shown, "text", WITHOUT[name]) if name in WITHOUT else Measure(shown, "unknown", "")
    if (said := written(name, value)) is not None:
        return Measure(shown, "text", said)
    if is_reading(value):
        return Measure(shown, "reading", value)
    if name.endswith("_at") and (moment := _moment(value)) is not None:
        return Measure(shown, "moment", moment)
    if name == "danger_zone" and isinstance(value, list) and len(value) == 2:
        low, high = value  # [low, high): people read both ends as inside
        last = high - 1 if isinstance(high, int) and not isinstance(high, bool) else high
        return Measure(shown, "text", f"{text(low)} to {text(last)}")
    if isinstance(value, Mapping):
        pairs = [(PAIRS.get(str(key), str(key)), _written(str(key), item)) for key, item in value.items()]
        return Measure(shown, "pairs", pairs)
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
    columns = [name for name in FIRST_COLUMNS if name in names]
    columns += sorted(names - set(columns))
    return Grid(
        columns=[COLUMNS.get(column) or label(column) for column in columns],
        rows=[[_cell(column, row.get(column)) for column in columns] for row in shown],
        left_out=max(0, len(rows) - MOST_ROWS),
    )


def _cell(name: str, value: Any) -> str | list[str]:
    if _is_list(value) and value and all(isinstance(item, Mapping) and len(item) == 2 for item in value):
        return ", ".join(" ".join(map(text, item.values())) for item in value)  # depth and whether found
    if _is_list(value) and any(isinstance(item, (Mapping, list)) or " " in str(item) for item in value):
        return [_entry(item) for item in value[:MOST_ROWS]]
    return _written(name, value)


def _written(name: str, value: Any) -> str:
    return written(name, value) or text(value)


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
