"""What an imported log came to is written once."""

from django.db import migrations

from kvaudit.server.ledger.guards import insert_only, joined

GUARDS = joined(
    *(insert_only(f"inquiries_{table}") for table in ("requestlog", "tenantcount", "requesthit", "prefillbucket"))
)


class Migration(migrations.Migration):
    dependencies = [("inquiries", "0007_standing"), ("ledger", "0005_chain_in_the_database")]
    operations = [migrations.RunSQL(*GUARDS)]
