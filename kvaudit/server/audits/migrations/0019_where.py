"""What the replicas that a run asks serve meanwhile: production, until now, of every plan and run. The database has the
default too: a worker of the release before goes on writing runs during an upgrade."""

from typing import Any

from django.db import migrations, models

CHOICES = [
    ("production", "Production"),
    ("newcomer", "Newcomers: started, take no traffic yet"),
    ("drained", "Drained: taken out of traffic"),
]


def where() -> Any:
    return models.CharField(choices=CHOICES, default="production", db_default="production", max_length=10)


class Migration(migrations.Migration):
    dependencies = [("audits", "0018_change_fixed")]
    operations = [
        migrations.AddField(model_name="plan", name="where", field=where()),
        migrations.AddField(model_name="run", name="where", field=where()),
    ]
