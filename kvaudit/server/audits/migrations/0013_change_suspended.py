"""Two more kinds of change: active checks suspended after a wedge, and resumed. No row changes."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("audits", "0010_guards_of_the_record")]

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
                ],
                max_length=20,
            ),
        ),
    ]
