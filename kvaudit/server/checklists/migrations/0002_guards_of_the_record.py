"""Statements, waivers and items are ended once and never deleted, also for a role that was granted more."""

from django.db import migrations

from kvaudit.server.ledger.guards import ended, fixed, joined, kept, once

GUARDS = joined(
    kept("checklists_ownitem"),
    ended("checklists_ownitem", "valid_to"),
    kept("checklists_attestation"),
    fixed(
        "checklists_attestation", "deployment_id", "team_id", "item", "statement", "link", "evidence_id", "author_id",
        "valid_from", "expires_at",
    ),
    ended("checklists_attestation", "valid_to", "warned_at"),
    kept("checklists_waiver"),
    fixed(
        "checklists_waiver", "deployment_id", "team_id", "item", "reason", "requester_id", "requested_at", "expires_at"
    ),
    once("checklists_waiver", "decided_by_id", "decided_at", "valid_from"),
    ended("checklists_waiver", "valid_to", "warned_at"),
)  # fmt: skip


class Migration(migrations.Migration):
    dependencies = [("checklists", "0001_initial"), ("ledger", "0005_chain_in_the_database")]
    operations = [migrations.RunSQL(*GUARDS)]
