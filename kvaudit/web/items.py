"""Checklist items 1 to 5 and the checks that answer them, until checklists are data of their own.

The mapping is checks.md, "Checklist items": an item holds when every one of its checks holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kvaudit.audits.status import CheckNow, DeploymentStatus
from kvaudit.verdict import Verdict, roll_up


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


@dataclass(frozen=True, slots=True)
class ItemStanding:
    """How one item stands for one deployment. ``passed`` is when all of its checks had last passed
    (the oldest of their last passes), None while one of them never did."""

    item: Item
    verdict: Verdict
    sentence: str
    passed: datetime | None


def item_standings(
    status: DeploymentStatus, last_passes: Mapping[str, datetime] | None = None
) -> list[ItemStanding]:
    """The five items, from the status that page, API and export share. ``last_passes``: check ->
    when it was last confirmed as a pass."""
    return [_standing(item, status.checks, last_passes or {}) for item in ITEMS]


def _standing(item: Item, now: Mapping[str, CheckNow], last_passes: Mapping[str, datetime]) -> ItemStanding:
    known = [now[name] for name in item.checks if name in now and not now[name].missing]
    untested = [name for name in item.checks if name not in now or now[name].missing]
    verdict = roll_up((each.verdict for each in known), missing=bool(untested))
    failing = [each.check for each in known if each.verdict is Verdict.FAIL]
    expired = [each.check for each in known if each.expired]
    reasons = [
        f"{words} {', '.join(names)}"
        for words, names in (("failing:", failing), ("expired:", expired), ("not tested:", untested))
        if names
    ]
    return ItemStanding(
        item=item,
        verdict=verdict,
        sentence="; ".join((f"Item {item.number}, {item.rule}: {verdict.value}", *reasons)),
        passed=min(last_passes[name] for name in item.checks)
        if all(name in last_passes for name in item.checks)
        else None,
    )
