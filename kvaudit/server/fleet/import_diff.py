"""Holds what an import would change or has changed: plain values for pages, the command line and the record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Action = Literal["added", "changed", "removed"]


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field; secrets appear as "set", "replaced" or "removed", never as values."""

    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.name}: {_word(self.before)} -> {_word(self.after)}"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing (deployment, node, tenant, pin, consent) that an import adds, changes or removes."""

    deployment: str
    what: str
    name: str
    action: Action
    fields: tuple[FieldDifference, ...] = ()

    def __str__(self) -> str:
        start = f"{self.deployment}: {self.what} {self.name}".rstrip() + f" {self.action}"
        return start + (f" ({'; '.join(map(str, self.fields))})" if self.fields else "")

    def as_json(self) -> dict[str, Any]:
        return {
            "deployment": self.deployment,
            "what": self.what,
            "name": self.name,
            "action": self.action,
            "fields": [
                {"name": field.name, "before": field.before, "after": field.after} for field in self.fields
            ],
        }


def between(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[FieldDifference, ...]:
    """The fields of ``after`` that differ."""
    return tuple(
        FieldDifference(name, before.get(name), value)
        for name, value in after.items()
        if before.get(name) != value
    )


def counted(differences: Iterable[Difference]) -> str:
    """``2 deployments added, 1 node changed`` or ``nothing to change``."""
    counts: dict[tuple[str, str], int] = {}
    for difference in differences:
        counts[difference.what, difference.action] = counts.get((difference.what, difference.action), 0) + 1
    words = [f"{number} {what}{'s' * (number > 1)} {action}" for (what, action), number in counts.items()]
    return ", ".join(words) or "nothing to change"


def _word(value: Any) -> str:
    text = "-" if value in (None, "", [], {}) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."
