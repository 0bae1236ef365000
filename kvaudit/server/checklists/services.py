"""Writes of checklists, each checked (PermissionDenied), explained (a sentence) and recorded."""

from kvaudit.server.checklists.attesting import File, attest, end_attestation
from kvaudit.server.checklists.own_items import ItemProblem, ItemSpec, change_item, create_item, retire_item
from kvaudit.server.checklists.scope import ClaimProblem
from kvaudit.server.checklists.trends import rebuild as rebuild_snapshots
from kvaudit.server.checklists.waiving import approve_waiver, end_waiver, refuse_waiver, request_waiver
from kvaudit.server.checklists.warning import warn_of_expiry

__all__ = (
    "ClaimProblem",
    "File",
    "ItemProblem",
    "ItemSpec",
    "approve_waiver",
    "attest",
    "change_item",
    "create_item",
    "end_attestation",
    "end_waiver",
    "rebuild_snapshots",
    "refuse_waiver",
    "request_waiver",
    "retire_item",
    "warn_of_expiry",
)
