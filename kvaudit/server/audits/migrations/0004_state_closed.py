"""An index for what held at a past moment."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("audits", "0003_live_markers")]

    operations = [
        migrations.AddIndex(
            model_name="checkstate",
            index=models.Index(fields=["closed_at"], name="audits_state_closed"),
        ),
    ]
