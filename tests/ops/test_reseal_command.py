"""``manage.py reseal``: keys can be changed without entering one secret again."""

from __future__ import annotations

import io
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.apps import apps
from django.core.management import CommandError, call_command

from kvaudit.fleet import services
from kvaudit.fleet.loading import load_target
from kvaudit.fleet.models import Tenant
from kvaudit.ledger.models import Entry
from kvaudit.notify.channels import create_channel
from kvaudit.ops.management.commands.reseal import SEALED
from tests import factories


def test_every_sealed_column_is_known() -> None:
    columns = {
        (model, field.name)
        for model in apps.get_models()
        for field in model._meta.get_fields()
        if field.name.endswith("_sealed")
    }
    assert columns == set(SEALED)


@pytest.mark.django_db
def test_after_it_the_old_key_may_go(settings: Any) -> None:
    deployment = factories.a_deployment()
    services.set_node_headers(node=factories.a_node(deployment), headers=[("X", "y")], actor="system:tests")
    tenant = Tenant.objects.create(deployment=deployment, name="t")
    services.set_tenant_key(tenant=tenant, key="k", actor="system:tests")
    create_channel(kind="webhook", name="c", address="https://h.example/x", actor="system:tests")

    old, new = settings.ENCRYPTION_KEYS[0], Fernet.generate_key().decode()
    settings.ENCRYPTION_KEYS = [new, old]
    out = io.StringIO()
    call_command("reseal", stdout=out)
    assert out.getvalue().startswith("4 secrets")
    settings.ENCRYPTION_KEYS = [new]
    target = load_target(deployment)
    assert target.nodes[0].credentials.headers == (("X", "y"),)
    assert target.tenants[0].credentials.headers == (("Authorization", "Bearer k"),)
    assert Entry.objects.filter(kind="secrets.resealed").count() == 1


@pytest.mark.django_db
def test_a_secret_that_no_key_opens_stops_it_before_anything_changed(settings: Any) -> None:
    deployment = factories.a_deployment()
    tenants = [Tenant.objects.create(deployment=deployment, name=name) for name in "ab"]
    services.set_tenant_key(tenant=tenants[0], key="k", actor="system:tests")
    Tenant.objects.filter(pk=tenants[1].pk).update(credential_sealed="broken")
    before = list(Tenant.objects.values())
    with pytest.raises(CommandError, match=rf"Nothing was changed\. fleet\.Tenant {tenants[1].pk}: "):
        call_command("reseal")
    assert list(Tenant.objects.values()) == before
