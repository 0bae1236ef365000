"""What happened in an incident is written once; quarantines, overrides and versions are ended once."""

from django.db import migrations

from kvaudit.server.ledger.guards import ended, fixed, insert_only, joined, kept, once

GUARDS = joined(
    *(
        insert_only(f"incidents_{table}")
        for table in (
            "transition", "citation", "fix", "replay", "externalresult", "release", "release_runs", "actionchange",
            "handled",
        )
    ),
    kept("incidents_incident"),
    fixed("incidents_incident", "deployment_id", "kind", "opened_at", "opened_by"),
    kept("incidents_quarantine"),
    fixed("incidents_quarantine", "deployment_id", "incident_id", "set_by", "reason", "valid_from"),
    ended("incidents_quarantine", "valid_to"),
    kept("incidents_override"),
    fixed("incidents_override", "incident_id", "reason", "fingerprint", "requester_id", "requested_at"),
    ended("incidents_override", "approved"),
    *(
        guard
        for table in ("incidents_impactline", "incidents_timelineevent")
        for guard in (kept(table), fixed(table, "incident_id", "series", "author"), ended(table, "valid_to"))
    ),
    kept("incidents_cause"),
    fixed("incidents_cause", "incident_id", "text", "author", "created_at"),
    ended("incidents_cause", "withdrawn_at"),
    kept("incidents_actionitem"),
    fixed("incidents_actionitem", "incident_id", "title", "enforced_by", "created_at"),
    kept("incidents_libraryentry"),
    fixed("incidents_libraryentry", "name", "document", "sha256", "imported_by_id", "imported_at"),
    once("incidents_libraryentry", "replaced_at"),
)  # fmt: skip


class Migration(migrations.Migration):
    dependencies = [("incidents", "0002_library"), ("ledger", "0005_chain_in_the_database")]
    operations = [migrations.RunSQL(*GUARDS)]
