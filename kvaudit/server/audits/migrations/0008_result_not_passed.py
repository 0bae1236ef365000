"""What did not pass, of a deployment: found without a walk over all that passed."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("audits", "0007_state_zone")]

    operations = [
        migrations.AddIndex(
            model_name="result",
            index=models.Index(
                condition=~models.Q(verdict="pass"),
                fields=["deployment", "verdict", "-id"],
                include=["run"],
                name="audits_result_not_passed",
            ),
        ),
    ]
