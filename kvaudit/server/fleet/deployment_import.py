"""One deployment of a fleet file on its way into the database: what is known of it, and what was changed so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from django.core.exceptions import PermissionDenied

from kvaudit.auditor.fleetfile import FleetDeployment
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.accounts.models import Team
from kvaudit.server.fleet.filekeys import FileKeys, Refused
from kvaudit.server.fleet.import_diff import Action, Difference, FieldDifference
from kvaudit.server.fleet.models import Deployment


@dataclass
class DeploymentImport:
    """``described`` is what the file says, ``found`` the row that is there already."""

    described: FleetDeployment
    found: Deployment | None
    actor: Actor
    at: datetime
    partial: bool  # CSV: what is empty is left as it is
    keys: FileKeys
    differences: list[Difference] = field(default_factory=list)

    def allowed(self, ability: str, team: Team) -> None:
        """Raises `Refused` where the actor may not."""
        try:
            require(self.actor, ability, team)
        except PermissionDenied:
            what = "give consent for" if ability == "give_consent" else "change"
            raise Refused(
                self.described.line,
                f"You may not {what} {self.described.slug}: your role in its team does not allow it.",
            ) from None

    def differs(self, what: str, name: str, action: Action, fields: tuple[FieldDifference, ...] = ()) -> None:
        self.differences.append(Difference(self.described.slug, what, name, action, fields))
