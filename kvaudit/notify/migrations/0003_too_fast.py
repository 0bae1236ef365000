import django.contrib.postgres.fields
from django.db import migrations, models

import kvaudit.notify.models

EVERYTHING = ["fail", "error", "overdue", "expiring"]
EVENTS = [
    ("fail", "A check failed"),
    ("error", "An audit ended in error"),
    ("overdue", "An audit is overdue"),
    ("expiring", "A waiver or an attestation is about to expire"),
    ("too_fast", "Production prompts were prefilled too fast to be true"),
    ("test", "Test message"),
]


def tell_who_hears_everything(apps, schema_editor):
    """A channel that is told of everything is told of the new event too."""
    for channel in apps.get_model("notify", "Channel").objects.filter(events__contains=EVERYTHING):
        channel.events = [*channel.events, "too_fast"]
        channel.save(update_fields=["events"])


def untell(apps, schema_editor):
    for channel in apps.get_model("notify", "Channel").objects.filter(events__contains=["too_fast"]):
        channel.events = [event for event in channel.events if event != "too_fast"]
        channel.save(update_fields=["events"])


class Migration(migrations.Migration):
    dependencies = [("notify", "0002_expiring")]

    operations = [
        migrations.AlterField(
            model_name="channel",
            name="events",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(choices=EVENTS, max_length=20),
                default=kvaudit.notify.models.every_event,
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
