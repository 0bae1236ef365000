"""Checks as pages name them: title and reason out of the registry, safe for ids it does not know."""

from __future__ import annotations

from collections.abc import Sequence

from kvaudit.auditor import checks


def title(check_id: str) -> str:
    """What the check asks; a result of another release may name a check that this one lacks."""
    return checks.describe(check_id).title if check_id in checks.MODULES else ""


def why(check_id: str) -> str:
    return checks.describe(check_id).why if check_id in checks.MODULES else ""


def in_order(check_ids: Sequence[str]) -> list[str]:
    """Registry order, unknown ones last."""
    known = {name: position for position, name in enumerate(checks.MODULES)}
    return sorted(check_ids, key=lambda name: (known.get(name, len(known)), name))


def drawn(check_id: str) -> tuple[str, ...]:
    """Measures that a drawing or a table of its own shows already."""
    return checks.describe(check_id).drawn if check_id in checks.MODULES else ()


def explained(check_id: str) -> bool:
    """Whether a fail has the sentence beside it that says how its causes meet."""
    return check_id in checks.MODULES and checks.describe(check_id).shows != ""
