from django.db import migrations, models

import kvaudit.server.notify.channels


class Migration(migrations.Migration):
    """Kinds of channels are found when they are asked for: a new one needs no migration, and may have a longer name."""

    dependencies = [("notify", "0005_secrets_bound_to_channels")]

    operations = [
        migrations.AlterField(
            model_name="channel",
            name="kind",
            field=models.CharField(choices=kvaudit.server.notify.channels.choices, max_length=30),
        ),
    ]
