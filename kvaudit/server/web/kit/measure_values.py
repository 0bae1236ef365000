"""Reads numbers out of stored measures. Any release may have written them: a field may be missing, odd or a
reading of the form ``{value, source, state}``, and then it is None."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kvaudit.auditor.readings import whole_number

LARGEST = 10**12


def bare(value: Any) -> Any:
    """The value of a reading, or the value itself."""
    return value.get("value") if isinstance(value, Mapping) and "value" in value else value


def tokens(value: Any) -> int | None:
    """A length in tokens, at least 1."""
    count = whole_number(bare(value))
    return count if count is not None and 0 < count <= LARGEST else None


def count(value: Any) -> int | None:
    """A number of things, 0 included."""
    found = whole_number(bare(value))
    return found if found is not None and 0 <= found <= LARGEST else None


def real(value: Any) -> float | None:
    """A finite number."""
    value = bare(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def rows(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
