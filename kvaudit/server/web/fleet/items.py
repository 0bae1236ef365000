"""Items 1 to 5 of the shipped checklist as marks of a row: what the checks say, and when they last passed.

Attestations and waivers are not looked at here: the fleet page asks who is at risk, not who has leave.
An item holds when every one of its checks holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kvaudit.auditor.verdict import Verdict, roll_up
from kvaudit.server.audits.state.deployment_status import CheckNow, DeploymentStatus
from kvaudit.server.checklists.items import shipped


@dataclass(frozen=True, slots=True)
class Item:
    number: str
    rule: str
    checks: tuple[str, ...]


ITEMS = tuple(Item(item.key, item.title, item.checks) for item in shipped().items if item.key.isdigit())


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
    return [_standing(item, status.checks, status.nodes, last_passes or {}) for item in ITEMS]


def _standing(
    item: Item, now: Mapping[str, CheckNow], nodes: Sequence[CheckNow], last_passes: Mapping[str, datetime]
) -> ItemStanding:
    known = [now[name] for name in item.checks if name in now and not now[name].missing]
    untested = [name for name in item.checks if name not in now or now[name].missing]
    known += [node for node in nodes if node.check in item.checks]
    verdict = roll_up((check_now.verdict for check_now in known), missing=bool(untested))
    failing = dict.fromkeys(check_now.check for check_now in known if check_now.verdict is Verdict.FAIL)
    expired = dict.fromkeys(check_now.check for check_now in known if check_now.expired)
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
