"""Parts of request logs that wait to be read are bound to their import, as keys are (fleet's 0006)."""

from __future__ import annotations

from typing import Any

from django.db import migrations

from kvaudit.server.accounts.sealing import Place, open_unbound, seal


def bind(apps: Any, schema_editor: Any) -> None:
    LogPart = apps.get_model("inquiries", "LogPart")
    for pk in list(LogPart.objects.values_list("pk", flat=True)):
        part = LogPart.objects.get(pk=pk)  # a megabyte each: one at a time
        text = open_unbound(part.sealed)
        if text is not None:
            place = Place("inquiries_logpart", "sealed", (part.work_id, part.number))
            LogPart.objects.filter(pk=pk).update(sealed=seal(text, place))


class Migration(migrations.Migration):
    dependencies = [("inquiries", "0008_guards_of_the_record")]
    operations = [migrations.RunPython(bind)]
