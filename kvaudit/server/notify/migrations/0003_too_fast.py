import django.contrib.postgres.fields
from django.db import migrations, models

import kvaudit.server.notify.models
from kvaudit.server.notify.migrations._new_event import for_who_hears

EVERYTHING = ["fail", "error", "overdue", "expiring"]
EVENTS = [
    ("fail", "A check failed"),
    ("error", "An audit ended in error"),
    ("overdue", "An audit is overdue"),
    ("expiring", "A waiver or an attestation is about to expire"),
    ("too_fast", "Production prompts were prefilled too fast to be true"),
    ("test", "Test message"),
]

tell_who_hears_everything, untell = for_who_hears(EVERYTHING, "too_fast")


class Migration(migrations.Migration):
    dependencies = [("notify", "0002_expiring")]

    operations = [
        migrations.AlterField(
            model_name="channel",
            name="events",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(choices=EVENTS, max_length=20),
                default=kvaudit.server.notify.models.every_event,
                size=None,
            ),
        ),
        migrations.AlterField(
            model_name="outboxmessage",
            name="event",
            field=models.CharField(choices=EVENTS, max_length=20),
        ),
        migrations.RunPython(tell_who_hears_everything, untell),
    ]
