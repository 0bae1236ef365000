"""Changes of a deployment are asked for by moment, never by key."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("audits", "0004_state_closed")]

    operations = [
        migrations.AddIndex(
            model_name="statechange",
            index=models.Index(fields=["deployment", "-at", "-id"], name="audits_change_when"),
        ),
        migrations.RemoveIndex(model_name="statechange", name="audits_change_of_deployment"),
    ]
