"""A verification that ended stays as it is, but for whether people were told of it; none is deleted."""

from django.db import migrations

from kvaudit.server.ledger.guards import ended, fixed, joined, kept

GUARDS = joined(
    kept("ledger_verification"),
    fixed("ledger_verification", "asked_by", "asked_at"),
    ended("ledger_verification", "finished_at", "told"),
)


class Migration(migrations.Migration):
    dependencies = [("ledger", "0005_chain_in_the_database")]
    operations = [migrations.RunSQL(*GUARDS)]
