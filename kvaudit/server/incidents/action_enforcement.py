"""Ties action items to what enforces them: tells how that stands now, and reopens them when it fails."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from kvaudit.auditor import checks as known_checks
from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.accounts.actors import Actor, actor_name
from kvaudit.server.audits.evidence.canonical import clean_text
from kvaudit.server.audits.state.status import status_of
from kvaudit.server.checklists.evaluation import Status
from kvaudit.server.checklists.models import Assessed
from kvaudit.server.checklists.scope import items_of as items_of_team
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.incidents import result_meaning
from kvaudit.server.incidents.models import ActionChange, ActionItem
from kvaudit.server.incidents.models.narrative import ActionState

CONSUMER = "system:incidents"


@dataclass(frozen=True, slots=True)
class Enforcement:
    """How what enforces an action item stands. ``green`` is True on *pass* alone (an item may also be
    attested); a waiver, an expired or a missing result is not green."""

    key: str
    green: bool
    since: datetime | None
    sentence: str


def choices(deployment: Deployment) -> list[tuple[str, str]]:
    """What an action item can be tied to: every check of this build, every item the team is held to."""
    checks = [(f"check:{check}", f"check {check}") for check in known_checks.MODULES]
    items = [
        (f"item:{item.key}", f"item {item.key}: {item.title}") for item in items_of_team(deployment.team)
    ]
    return [*items, *checks]


def enforcements(deployment: Deployment, keys: Iterable[str]) -> dict[str, Enforcement]:
    """Key -> how it stands now. A fixed number of queries, whatever the number of keys."""
    wanted = {key for key in keys if key}
    found: dict[str, Enforcement] = {}
    if any(key.startswith("check:") for key in wanted):
        found |= _checks(deployment, wanted)
    if any(key.startswith("item:") for key in wanted):
        found |= _items(deployment, wanted)
    for key in wanted - found.keys():
        found[key] = Enforcement(key, False, None, f"there is no {key.replace(':', ' ')} any more")
    return found


def _checks(deployment: Deployment, wanted: Iterable[str]) -> dict[str, Enforcement]:
    states = status_of(deployment).checks
    found = {}
    for key in wanted:
        kind, _, check = key.partition(":")
        if kind != "check" or check not in known_checks.MODULES:
            continue
        now = states.get(check)
        if now is None or now.missing:
            found[key] = Enforcement(key, False, None, f"{check} never ran")
        elif now.expired:
            found[key] = Enforcement(key, False, None, f"{check} has expired ({now.expired_by})")
        elif now.verdict is Verdict.PASS:
            found[key] = Enforcement(key, True, now.since, f"{check} passes")
        else:
            found[key] = Enforcement(key, False, now.since, f"{check} says {now.verdict.value}")
    return found


def _items(deployment: Deployment, wanted: Iterable[str]) -> dict[str, Enforcement]:
    rows = Assessed.objects.filter(pk=deployment.pk).standings().rows
    cells = rows[0].cells if rows else {}
    found = {}
    for key in wanted:
        kind, _, item = key.partition(":")
        if kind != "item" or item not in cells:
            continue
        cell = cells[item]
        green = cell.status in (Status.PASS, Status.ATTESTED)
        found[key] = Enforcement(key, green, cell.since, f"item {item} is {cell.status.value}")
    return found


def reopen_actions(deployment: Deployment, check: str, why: str) -> list[ActionItem]:
    """Done items whose check has just failed are open again; closed incidents are no exception."""
    keys = [f"check:{check}", *(f"item:{key}" for key in result_meaning.items_of(check))]
    keys += [
        f"item:{item.key}" for item in items_of_team(deployment.team) if item.own and check in item.checks
    ]
    rows = ActionItem.objects.select_for_update(of=("self",)).filter(
        incident__deployment=deployment, state=ActionState.DONE, enforced_by__in=keys
    )
    reopened = list(rows.order_by("pk"))
    for item in reopened:
        step(item, ActionState.REOPENED, actor=CONSUMER, reason=f"{check} failed again: {why}")
    return reopened


ACTION_STEPS: dict[str, frozenset[str]] = {
    ActionState.OPEN: frozenset({ActionState.DONE, ActionState.DROPPED}),
    ActionState.REOPENED: frozenset({ActionState.DONE, ActionState.DROPPED}),
    ActionState.DONE: frozenset({ActionState.REOPENED}),
    ActionState.DROPPED: frozenset({ActionState.OPEN}),
}


def step(item: ActionItem, to: ActionState, *, actor: Actor, reason: str) -> ActionItem:
    """The one transition of an action item, with its history row. Raises ValueError for no such step."""
    before = item.state
    if to not in ACTION_STEPS[before]:
        raise ValueError(f"This action item is {before}: it cannot become {to.value} from there.")
    item.state = to
    item.save(update_fields=["state"])
    ActionChange.objects.create(
        item=item,
        at=clock.now(),
        actor=actor_name(actor)[:200],
        before=before,
        after=to,
        reason=clean_text(reason.strip(), 1_000),
    )
    return item
