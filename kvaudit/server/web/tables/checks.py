"""Checks as pages name them: title and reason out of the registry, safe for ids it does not know."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from kvaudit.auditor import checks


@lru_cache(maxsize=64)
def title(check_id: str) -> str:
    """What the check asks; a result of another release may name a check that this one lacks."""
    return str(checks.get(check_id).title) if check_id in checks.MODULES else ""


@lru_cache(maxsize=64)
def why(check_id: str) -> str:
    return str(checks.get(check_id).why) if check_id in checks.MODULES else ""


def in_order(check_ids: Sequence[str]) -> list[str]:
    """Registry order, unknown ones last."""
    known = {name: position for position, name in enumerate(checks.MODULES)}
    return sorted(check_ids, key=lambda name: (known.get(name, len(known)), name))
