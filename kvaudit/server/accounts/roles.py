"""Five cumulative roles and the closed list of what they allow.

A role held through a membership counts for that team's deployments. A role group on the user
itself counts for every team (the security team's auditor, the admin). A superuser is an admin.
"""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """Each role may do all that the ones above it may. The values are the group names."""

    VIEWER = "viewer"
    AUDITOR = "auditor"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    def includes(self, other: Role) -> bool:
        return self.rank >= other.rank


ALLOWS: dict[Role, str] = {
    Role.VIEWER: "reads status, results and plans",
    Role.AUDITOR: "also reads kept answers of engines and the ledger",
    Role.OPERATOR: "also runs audits, edits fleet, keys, plans and incidents, attests",
    Role.APPROVER: "also approves waivers and gives consent to prompts at the limit",
    Role.ADMIN: "also gives roles and manages channels",
}
"""What each role adds to the one above it, in a few words."""

_RANKS = {role: rank for rank, role in enumerate(Role)}

ABILITIES: dict[str, Role] = {
    "view": Role.VIEWER,  # status, results, plans, nodes without their secrets
    "read_evidence": Role.AUDITOR,  # stored bodies of engines' answers
    "view_ledger": Role.AUDITOR,
    "run_audits": Role.OPERATOR,  # "Run passive checks", cancel
    "pause_probes": Role.OPERATOR,
    "edit_plans": Role.OPERATOR,
    "edit_fleet": Role.OPERATOR,  # deployments, nodes, pins, tenants' keys, import
    "edit_checklists": Role.OPERATOR,  # a team's own items
    "attest": Role.OPERATOR,
    "request_waivers": Role.OPERATOR,
    "edit_incidents": Role.OPERATOR,  # open, write the postmortem, record a fix, release on evidence
    "quarantine": Role.OPERATOR,
    "edit_library": Role.OPERATOR,  # import a published incident
    "give_consent": Role.APPROVER,  # long prompts while the pool is small
    "approve": Role.APPROVER,  # waivers that somebody else asked for; ending others' attestations
    "manage_channels": Role.ADMIN,
    "manage_tokens": Role.ADMIN,  # other people's tokens; everybody makes their own
    "manage_accounts": Role.ADMIN,
}
"""Ability -> the least role that has it. An unknown ability is a programming error, not a no."""
