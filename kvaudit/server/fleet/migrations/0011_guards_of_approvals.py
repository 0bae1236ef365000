"""An approval of a session API is part of the record: what was approved, by whom and when never changes, and it ends once."""

from __future__ import annotations

from django.db import migrations

from kvaudit.server.ledger.guards import ended, fixed, joined, kept

TABLE = "fleet_sessionapproval"
GUARDS = joined(
    kept(TABLE),
    fixed(TABLE, "deployment_id", "digest", "approved_by_id", "reason", "valid_from"),
    ended(TABLE, "valid_to"),
)


class Migration(migrations.Migration):
    dependencies = [("fleet", "0010_session_approval"), ("ledger", "0005_chain_in_the_database")]
    operations = [migrations.RunSQL(*GUARDS)]
