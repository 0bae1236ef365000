"""Makes values that come back out of jsonb as they went in, so that a digest can be computed again. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

LONGEST_TEXT = 20_000  # characters of one string in a result; bodies are evidence, not measures


def clean_text(text: str, longest: int = LONGEST_TEXT) -> str:
    """Without what PostgreSQL refuses (NUL, lone surrogates), cut at ``longest``."""
    kept = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return kept if len(kept) <= longest else kept[: longest - 1] + "…"


def clean(value: Any) -> Any:
    """Plain JSON of any value: whole floats become ints (jsonb forgets the difference beyond 2^53),
    NaN and infinities text, unknown objects their text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean_text(str(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        return int(value) if value == int(value) else value
    if isinstance(value, Mapping):
        return {clean_text(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((clean(item) for item in value), key=str)
    return clean_text(str(value))
