"""An approval of a session API is of one content, is ended once and never deleted, also for a role that was granted
more. Its table was made beside the guards of the others and had none."""

from django.db import migrations

from kvaudit.server.ledger.guards import ended, fixed, joined, kept

GUARDS = joined(
    kept("fleet_sessionapproval"),
    fixed("fleet_sessionapproval", "deployment_id", "digest", "approved_by_id", "reason", "valid_from"),
    ended("fleet_sessionapproval", "valid_to"),
)


class Migration(migrations.Migration):
    dependencies = [("fleet", "0010_session_approval"), ("ledger", "0005_chain_in_the_database")]
    operations = [migrations.RunSQL(*GUARDS)]
