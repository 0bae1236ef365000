"""Reads measures of a stored result back, tolerantly. Rows come out of a database or a file, so each is looked
at before it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def rows(measures: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The rows of a measure that is a list of groups; [] where it is anything else."""
    found = measures.get(name)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def number(value: Any) -> float:
    """A count, 0 where it is none."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


def tokens(value: Any) -> int:
    """A length in tokens, 0 where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
