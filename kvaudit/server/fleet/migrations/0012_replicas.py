"""A node's address may lead to several processes in turn: how many are declared to answer there."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0011_guards_of_approvals")]
    operations = [
        migrations.AddField("node", "replicas", models.PositiveSmallIntegerField(default=0)),
    ]
