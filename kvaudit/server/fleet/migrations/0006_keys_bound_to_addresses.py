"""Keys that the first release sealed are bound to their row and to the addresses that stand there now.

This happens here and once: what the first release sealed is refused ever after. A key that no key of
ENCRYPTION_KEYS opens is left as it is; the page then says that it must be entered again.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations

from kvaudit.server.accounts.sealing import Place, open_unbound, seal
from kvaudit.auditor.targets import tenants_origins
from kvaudit.auditor.transport import origin_of


def bind(apps: Any, schema_editor: Any) -> None:
    Node, Tenant = apps.get_model("fleet", "Node"), apps.get_model("fleet", "Tenant")
    # Of what is gone the record needs no key.
    for gone in ({"valid_to__isnull": False}, {"deployment__retired_at__isnull": False}):
        Node.objects.filter(**gone).update(headers_sealed="")
        Tenant.objects.filter(**gone).update(credential_sealed="", salt_sealed="")
    for node in Node.objects.exclude(headers_sealed=""):
        _bind(node, "fleet_node", "headers_sealed", frozenset({origin_of(node.url)}))
    for tenant in Tenant.objects.exclude(credential_sealed="", salt_sealed="").select_related("deployment"):
        deployment = tenant.deployment
        nodes = Node.objects.filter(deployment=deployment, valid_to=None).values_list("url", flat=True)
        origins = tenants_origins(deployment.entry, list(nodes), deployment.session.get("url", ""))
        _bind(tenant, "fleet_tenant", "credential_sealed", origins)
        _bind(tenant, "fleet_tenant", "salt_sealed", origins)


def _bind(row: Any, table: str, column: str, origins: frozenset[str]) -> None:
    text = open_unbound(getattr(row, column)) if getattr(row, column) else None
    if text is not None:
        place = Place(table, column, (row.deployment_id, row.name))
        type(row).objects.filter(pk=row.pk).update(**{column: seal(text, place, origins)})


class Migration(migrations.Migration):
    dependencies = [("fleet", "0005_where_keys_come_from")]
    operations = [migrations.RunPython(bind)]
