"""Action items of every incident: who has what to do until when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from django.utils import timezone

from kvaudit.server.accounts.models import User
from kvaudit.server.incidents.models import ActionItem
from kvaudit.server.incidents.models.narrative import ActionState
from kvaudit.server.web.kit import listing
from kvaudit.server.web.kit.listing import choice, text

MOST = 300
TO_DO = "todo"
STATES = ((TO_DO, "to do"), (ActionState.DONE.value, "done"), (ActionState.DROPPED.value, "dropped"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters(listing.Filters):
    """``owner`` is a part of a user's name."""

    state: str = choice([value for value, _ in STATES], TO_DO)
    owner: str = text()


@dataclass(frozen=True, slots=True)
class Action:
    """An item with the incident it belongs to; ``late`` when it was due before today and is still to do."""

    item: ActionItem
    owner: str
    late: bool

    @property
    def due(self) -> date | None:
        return self.item.due


@dataclass(frozen=True, slots=True)
class Listed:
    rows: Sequence[Action]
    more: bool  # there are more than are shown

    @property
    def late(self) -> int:
        return sum(row.late for row in self.rows)


def listed(user: User, filters: Filters, now: datetime, most: int = MOST) -> Listed:
    """One query. What is to do is sorted by its date, the rest newest first."""
    rows = ActionItem.objects.visible_to(user).select_related("incident__deployment", "owner")
    if filters.state == TO_DO:
        rows = rows.to_do()
    else:
        rows = rows.filter(state=filters.state).order_by("-pk")
    if filters.owner:
        rows = rows.filter(owner__username__icontains=filters.owner)
    found = list(rows[: most + 1])
    today = timezone.localtime(now).date()
    return Listed([_action(item, today, filters) for item in found[:most]], len(found) > most)


def _action(item: ActionItem, today: date, filters: Filters) -> Action:
    owner = item.owner.get_username() if item.owner is not None else ""
    late = filters.state == TO_DO and item.due is not None and item.due < today
    return Action(item, owner, late)
