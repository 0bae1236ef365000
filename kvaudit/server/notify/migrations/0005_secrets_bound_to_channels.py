"""Addresses and secrets of channels are bound to their channel, and secrets to the address's origin.

Here and once, as in fleet's 0006: what the first release sealed is refused ever after.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations

from kvaudit.server.accounts.sealing import Place, open_unbound, seal
from kvaudit.auditor.transport import origin_of


def bind(apps: Any, schema_editor: Any) -> None:
    Channel = apps.get_model("notify", "Channel")
    for channel in Channel.objects.all():
        address, secret = open_unbound(channel.address_sealed), open_unbound(channel.secret_sealed)
        if address is None:
            continue  # neither can be used: the channel must be made anew, and its messages say so
        origins = frozenset({origin_of(address)}) if channel.kind == "webhook" else frozenset()
        bound = {"address_sealed": seal(address, Place("notify_channel", "address_sealed", (channel.pk,)), origins)}
        if secret is not None:
            bound["secret_sealed"] = seal(secret, Place("notify_channel", "secret_sealed", (channel.pk,)), origins)
        Channel.objects.filter(pk=channel.pk).update(**bound)


class Migration(migrations.Migration):
    dependencies = [("notify", "0004_ledger")]
    operations = [migrations.RunPython(bind)]
