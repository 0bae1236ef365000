"""The index of a deployment's results holds what they said. At ten million results it takes half a minute."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("audits", "0005_change_when")]

    operations = [
        migrations.AddIndex(
            model_name="result",
            index=models.Index(
                fields=["deployment", "check_id", "-id"], include=["verdict", "run"], name="audits_result_said"
            ),
        ),
        migrations.RemoveIndex(model_name="result", name="audits_result_of_check"),
    ]
