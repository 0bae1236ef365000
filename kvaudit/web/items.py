"""Checklist items 1 to 5 and the checks that answer them, until checklists are data of their own.

The mapping is checks.md, "Checklist items": an item holds when every one of its checks holds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    number: str
    rule: str
    checks: tuple[str, ...]


ITEMS = (
    Item("1", "The pool holds the largest request, read from the running process", ("pool",)),
    Item("2", "A rejected request ends before it allocates or transfers anything", ("rejection", "version")),
    Item("3", "Both sides verify what was transferred", ("coherence", "accounting", "version")),
    Item("4", "The failure path is tested on content", ("canary", "rejection", "coherence")),
    Item("5", "The gate ran again after the last capacity change", ("drift",)),
)
