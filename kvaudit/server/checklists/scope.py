"""Says where a claim applies (one deployment or all of a team), and which items there are for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kvaudit.server.accounts.models import Team
from kvaudit.server.checklists.items import Item, shipped
from kvaudit.server.checklists.models import OwnItem
from kvaudit.server.fleet.models import Deployment


class ClaimProblem(ValueError):
    """An attestation or a waiver that cannot be; the text is a sentence for the person who asked."""


@dataclass(frozen=True, slots=True)
class Scope:
    """One deployment, or (without one) every deployment of the team."""

    team: Team
    deployment: Deployment | None = None

    @classmethod
    def of(cls, deployment: Deployment | None, team: Team | None) -> Scope:
        """Raises ClaimProblem unless exactly one is given."""
        if (deployment is None) == (team is None):
            raise ClaimProblem("Name either one deployment or one team.")
        if deployment is not None:
            return cls(deployment.team, deployment)
        assert team is not None
        return cls(team)

    @property
    def subject(self) -> str:
        """As the ledger names it."""
        return f"deployment:{self.deployment.slug}" if self.deployment else f"team:{self.team.slug}"

    @property
    def columns(self) -> dict[str, object]:
        return {"deployment": self.deployment, "team": None if self.deployment else self.team}

    def __str__(self) -> str:
        return self.deployment.slug if self.deployment else f"every deployment of {self.team.slug}"


def items_of(team: Team, moment: datetime | None = None) -> list[Item]:
    """The shipped items and the team's own, as they hold at a moment (default: now). One query."""
    rows = OwnItem.objects.filter(team=team)
    own = (rows.current() if moment is None else rows.at(moment)).order_by("key")
    return [*shipped(moment).items, *(row.as_item() for row in own)]


def item_of(team: Team, key: str) -> Item:
    """Raises ClaimProblem when the team's deployments are not held to such an item."""
    for item in items_of(team):
        if item.key == key:
            return item
    raise ClaimProblem(f"Deployments of {team.slug} have no checklist item {key[:20]!r}.")
