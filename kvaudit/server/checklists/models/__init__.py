"""A team's own items, attestations, waivers, daily counts, and deployments as the checklists see them."""

from __future__ import annotations

from kvaudit.server.checklists.models.assessed import Assessed
from kvaudit.server.checklists.models.claims import Attestation, Decision, Waiver
from kvaudit.server.checklists.models.daily_counts import DailyCount
from kvaudit.server.checklists.models.own_items import OwnItem

__all__ = (
    "Assessed",
    "Attestation",
    "DailyCount",
    "Decision",
    "OwnItem",
    "Waiver",
)
