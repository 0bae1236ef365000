"""Writes of checklists, each checked (PermissionDenied), explained (a sentence) and recorded."""

from kvaudit.server.checklists.attestations import File, attest, end_attestation
from kvaudit.server.checklists.expiry_warnings import warn_of_expiry
from kvaudit.server.checklists.own_items import ItemProblem, ItemSpec, change_item, create_item, retire_item
from kvaudit.server.checklists.scope import ClaimProblem
from kvaudit.server.checklists.trends import rebuild as rebuild_snapshots
from kvaudit.server.checklists.waivers import approve_waiver, end_waiver, refuse_waiver, request_waiver

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
