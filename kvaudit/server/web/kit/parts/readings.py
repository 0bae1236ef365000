"""Stored facts of a node as rows of readings: name, value, where it was read, how sure.

Facts come out of the database, written by any release: nothing about their shape is taken for granted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAIN = ("version", "model", "context", "pool", "input_limit", "role", "process")
NAMES = {
    "version": "Engine version",
    "model": "Model",
    "revision": "Model revision",
    "context": "Context length (tokens)",
    "pool": "KV pool, smallest rank (tokens)",
    "input_limit": "First refused prompt length (tokens)",
    "role": "Role",
    "process": "Process",
}
_SHOWN_APART = {"engine", "kind", "notes", "exposures", "workers", "ranks", "settings", "conditions",
                "features", "components"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReadingLine:
    """One reading; ``reading`` is ``{value, source, state}`` or None where nothing was stored."""

    name: str
    reading: Mapping[str, Any] | None


def is_reading(value: object) -> bool:
    return isinstance(value, Mapping) and "state" in value and "value" in value


def main_lines(facts: Mapping[str, Any]) -> list[ReadingLine]:
    """The readings that decide: always all of them, unknown where absent."""
    return [ReadingLine(NAMES[name], _reading(facts.get(name))) for name in MAIN]


def other_lines(facts: Mapping[str, Any]) -> list[ReadingLine]:
    """Every further reading: revision, ranks, settings, and fields this release does not know."""
    return list(_others(facts))


def notes(facts: Mapping[str, Any]) -> list[str]:
    found = facts.get("notes")
    return [str(note) for note in found] if isinstance(found, Sequence) and not isinstance(found, str) else []


def _others(facts: Mapping[str, Any]) -> Iterator[ReadingLine]:
    for name, value in sorted(facts.items()):
        if name not in MAIN and name not in _SHOWN_APART and is_reading(value):
            yield ReadingLine(NAMES.get(name, name), _reading(value))
    ranks = facts.get("ranks")
    if isinstance(ranks, Sequence) and not isinstance(ranks, str):
        for rank in ranks:
            if isinstance(rank, Mapping):
                label = f"rank {rank.get('rank', '?')}"
                yield ReadingLine(f"{label}: KV pool (tokens)", _reading(rank.get("pool")))
                if rank.get("sliding_window") is not None:
                    yield ReadingLine(
                        f"{label}: sliding-window pool (tokens)", _reading(rank["sliding_window"])
                    )
    settings = facts.get("settings")
    if isinstance(settings, Mapping):
        for name, value in sorted(settings.items()):
            yield ReadingLine(str(name), _reading(value))
    for group in ("components", "conditions", "features"):
        values = facts.get(group)
        if isinstance(values, Mapping):
            for name, value in sorted(values.items()):
                yield ReadingLine(f"{group[:-1]} {name}", _plain(value))


def _reading(value: Any) -> Mapping[str, Any] | None:
    return value if is_reading(value) else None


def _plain(value: Any) -> Mapping[str, Any]:
    shown = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
    return {"value": shown if shown != "" else "present", "source": "", "state": "read"}
