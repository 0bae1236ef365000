"""Lists what the application's database role may do with each table, and why: the tables of the record, and the
others.

Privileges stop what no code of ours does; the triggers of `kvaudit.server.ledger.guards` say the same a second
time, and what privileges cannot say (an interval is closed once). A test walks every table: a new one without a line
here fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """``update``: the columns that may change, None for all. ``insert``: the columns that may be given, None for all.
    ``pruned``: rows go by retention's own role."""

    why: str
    update: tuple[str, ...] | None = ()
    insert: tuple[str, ...] | None = None
    delete: bool = False
    pruned: bool = False

    @property
    def free(self) -> bool:
        return self.update is None and self.delete

    @property
    def word(self) -> str:
        """For the table in the documentation."""
        if self.free:
            return "free"
        if self.insert == ():
            return "read only"
        if self.update is None:
            return "no delete"
        return "columns" if self.update else "insert only"


def _free(why: str) -> Policy:
    return Policy(why, update=None, delete=True)


def _columns(why: str, *columns: str) -> Policy:
    return Policy(why, update=columns)


_ACCOUNTS = "who may log in and do what: changed by people, each change an entry of the ledger"
_DJANGO = "Django's own"
_WORK = "work in progress, no record"

TABLES: Mapping[str, Policy] = {
    "ledger_entry": Policy(
        "the chain; number, time and hashes are the database's", insert=("actor", "kind", "subject", "digest")
    ),
    "ledger_verification": _columns(
        "a walk tells how far it is, then ends once; never deleted",
        "started_at", "seen_at", "finished_at", "token", "wanted", "entries", "last_hash", "outcome", "sentence",
        "told",
    ),
    # Evidence and what follows from it
    "audits_result": Policy("what a check concluded; the run's digest covers it"),
    "audits_evidence": Policy("bodies, named by their digest", pruned=True),
    "audits_runevidence": Policy("which run kept which body; the run's digest covers it", pruned=True),
    "audits_prunedevidence": Policy("what retention dropped, with the digests of it"),
    "audits_run": _columns(
        "queue and lease move until it ends, then nothing does; what it is about never changes",
        "state", "verdict", "warn", "summary", "fingerprint", "tokens_spent", "seed", "progress", "not_before",
        "expires_at", "rung_at", "rings", "attempt", "lease_token", "lease_until", "cancel_requested_at",
        "cancel_requested_by_id", "started_at", "finished_at",
    ),
    "audits_checkstate": _columns(
        "an interval is confirmed, expired and closed, forwards only; its verdict never changes, its beginning only to "
        "an earlier one of a fail",
        "since", "last_confirmed", "expires_at", "expired_by", "expiry_noted", "summary", "interval", "run_id",
        "result_id", "closed_at", "zone_low", "zone_high",
    ),
    "audits_statechange": Policy("the timeline"),
    "audits_overdue": _columns("closed once", "until"),
    "audits_plan": _columns(
        "a version is closed once; slots move", "valid_to", "next_due", "missed_from", "missed_before"
    ),
    "audits_plan_deployments": Policy("what a version of a plan selects"),
    "audits_workerclock": _free("how far workers' clocks are off now"),
    "audits_planting": _free("our own markers while they are live: written as they are sent, gone after 30 days"),
    # The fleet
    "fleet_deployment": Policy("description, imported anew; its name never changes", update=None),
    "fleet_node": Policy("closed once; keys are sealed anew", update=None),
    "fleet_tenant": Policy("closed once; keys are replaced and sealed anew", update=None),
    "fleet_pin": _columns("closed once", "valid_to"),
    "fleet_consent": _columns("closed once", "valid_to"),
    "fleet_pause": _columns("closed once", "valid_to"),
    "fleet_sessionapproval": _columns("what a second person approved; ended once", "valid_to"),
    "fleet_nodesnapshot": _columns("what a node said, confirmed forwards only", "last_confirmed", "current"),
    "fleet_fingerprintchange": Policy("that a configuration changed"),
    # Compliance
    "checklists_ownitem": _columns("a version is closed once", "valid_to"),
    "checklists_attestation": _columns("ended once", "valid_to", "ended_by_id", "end_reason", "warned_at"),
    "checklists_waiver": _columns(
        "decided once, ended once",
        "decision", "decided_by_id", "decided_at", "decision_note", "valid_from", "valid_to", "ended_by_id",
        "end_reason", "warned_at",
    ),
    "checklists_dailycount": _free("derived: made again from the intervals"),
    # Incidents
    "incidents_incident": _columns(
        "people write it, transitions move it; what it is about never changes",
        "title", "severity", "state", "mitigated_at", "restored_at", "closed_at", "affected_from", "affected_to",
        "roles", "builds", "fingerprint", "first_evidence_at", "last_evidence_at", "window_from", "window_to",
        "window_check", "summary", "detection", "missed_by", "overlap", "lessons", "lead_id",
    ),
    "incidents_transition": Policy("each step of an incident"),
    "incidents_citation": Policy("what an incident rests on"),
    "incidents_quarantine": _columns("ended once", "valid_to", "ended_by", "end_reason"),
    "incidents_fix": Policy("what was fixed, by whom"),
    "incidents_replay": Policy("which run replays which"),
    "incidents_externalresult": Policy("what somebody's script said"),
    "incidents_override": _columns("decided once", "approved", "decided_by_id", "decided_at", "note"),
    "incidents_release": Policy("that the gate let a deployment back, and on what"),
    "incidents_release_runs": Policy("the runs that a release rests on"),
    "incidents_impactline": _columns("a version is closed once", "valid_to"),
    "incidents_timelineevent": _columns("a version is closed once", "valid_to"),
    "incidents_cause": _columns("withdrawn once", "withdrawn_at", "withdrawn_by"),
    "incidents_actionitem": _columns("its state; each step is a change", "state"),
    "incidents_actionchange": Policy("each step of an action item"),
    "incidents_libraryentry": _columns("replaced once", "replaced_at"),
    "incidents_cursor": _free(_WORK),
    "incidents_handled": Policy("changes that have had their consequences"),
    # Inquiries
    "inquiries_requestlog": Policy("what an imported log came to"),
    "inquiries_tenantcount": Policy("what an imported log came to"),
    "inquiries_requesthit": Policy("what an imported log came to"),
    "inquiries_prefillbucket": Policy("what an imported log came to"),
    "inquiries_logimport": _free(_WORK),
    "inquiries_logpart": _free(_WORK),
    "inquiries_export": _free(_WORK),
    "inquiries_savedview": _free("people's own bookmarks"),
    # Messages
    "notify_channel": _free("where messages go: settings"),
    "notify_outboxmessage": _free("delivery in progress"),
    # People
    "accounts_team": _free(_ACCOUNTS),
    "accounts_user": _free(_ACCOUNTS),
    "accounts_user_groups": _free(_ACCOUNTS),
    "accounts_user_user_permissions": _free(_ACCOUNTS),
    "accounts_membership": _free(_ACCOUNTS),
    "accounts_apitoken": _free(_ACCOUNTS),
    "accounts_failedlogins": _free("counts of the last minutes"),
    "accounts_session": _free("who is logged in now"),
    "auth_group": _free(_DJANGO),
    "auth_group_permissions": _free(_DJANGO),
    "auth_permission": _free(_DJANGO),
    "django_content_type": _free(_DJANGO),
    "django_session": _free("who is logged in now"),
    "django_migrations": Policy("which migrations ran: the owner's", insert=()),
}  # fmt: skip
