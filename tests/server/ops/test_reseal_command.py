"""``manage.py reseal``: keys can be changed without entering one secret again."""

from __future__ import annotations

import io
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db.models import BinaryField, CharField, TextField

from kvaudit.server.accounts.sealed_fields import place_of, sealed_columns
from kvaudit.server.fleet import services
from kvaudit.server.fleet.models import Tenant
from kvaudit.server.inquiries.request_logs.import_worker import Parts
from kvaudit.server.ledger.models import Entry
from kvaudit.server.notify.models import Channel
from kvaudit.server.notify.services import create_channel
from tests import factories
from tests.factories import loaded_target
from tests.server.inquiries.request_logs.imports import LOG, begun


def test_no_sealed_column_can_be_forgotten() -> None:
    """What is called sealed is a `SealedField`, which reseal finds; and only for those can be sealed."""
    named = {
        (model, field.name)
        for model in apps.get_models()
        for field in model._meta.get_fields()
        if "sealed" in field.name and isinstance(field, TextField | BinaryField | CharField)
    }
    assert named == {(model, field.name) for model, field in sealed_columns()}
    assert len(named) == 6
    for model, field in sealed_columns():
        assert {each for each in field.row if each != "id"} <= {each.attname for each in model._meta.fields}
        assert field.row, f"{model._meta.label}.{field.name} must say what identifies its row"


def test_nothing_is_sealed_for_another_column() -> None:
    with pytest.raises(TypeError, match=r"fleet\.Tenant\.key_env"):
        place_of(Tenant(deployment_id=1, name="a"), "key_env")
    with pytest.raises(ValueError, match="must be saved"):
        place_of(Channel(), "secret_sealed")


@pytest.mark.django_db
def test_after_it_the_old_key_may_go(settings: Any) -> None:
    deployment = factories.a_deployment(entry="http://gw.example")
    services.set_node_headers(node=factories.a_node(deployment), headers=[("X", "y")], actor="system:tests")
    tenant = Tenant.objects.create(deployment=deployment, name="t")
    services.set_tenant_key(tenant=tenant, key="k", actor="system:tests")
    create_channel(kind="webhook", name="c", address="https://h.example/x", actor="system:tests")
    work = begun(LOG)
    parts = work.parts.count()

    old, new = settings.ENCRYPTION_KEYS[0], Fernet.generate_key().decode()
    settings.ENCRYPTION_KEYS = [new, old]
    out = io.StringIO()
    call_command("reseal", stdout=out)
    assert out.getvalue().startswith(f"{4 + parts} secrets")
    settings.ENCRYPTION_KEYS = [new]
    assert io.BufferedReader(Parts(work)).read() == LOG
    target = loaded_target(deployment)
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
