"""One more kind of change: a recorded fix, after which evidence of a check counts again. No row changes."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("audits", "0017_readings_to_come")]

    operations = [
        migrations.AlterField(
            model_name="statechange",
            name="what",
            field=models.CharField(
                choices=[
                    ("verdict", "Verdict"),
                    ("capacity", "Capacity"),
                    ("expired", "Expired"),
                    ("overdue", "Overdue"),
                    ("back on schedule", "Back"),
                    ("run", "Run"),
                    ("suspended", "Suspended"),
                    ("resumed", "Resumed"),
                    ("fixed", "Fixed"),
                ],
                max_length=20,
            ),
        ),
    ]
