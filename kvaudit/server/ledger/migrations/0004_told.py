"""Which breaks of the ledger people have been told of. What was found in order again since is not told any more."""

from django.db import migrations, models

OVER = """
UPDATE ledger_verification broken SET told = TRUE
WHERE outcome = 'broken' AND EXISTS (
  SELECT 1 FROM ledger_verification later WHERE later.outcome = 'intact' AND later.finished_at > broken.finished_at
)
"""


class Migration(migrations.Migration):
    dependencies = [("ledger", "0003_verifications")]

    operations = [
        migrations.AddField(
            model_name="verification", name="told", field=models.BooleanField(default=False)
        ),
        migrations.RunSQL(OVER, migrations.RunSQL.noop),
    ]
