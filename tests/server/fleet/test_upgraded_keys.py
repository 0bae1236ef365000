"""Keys of the first release are bound once, by the migration, to the addresses that stand there then."""

from __future__ import annotations

import io
import json
from importlib import import_module
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.apps import apps
from django.utils import timezone

from kvaudit.server.accounts.sealing import SealBroken
from kvaudit.server.fleet.models import Deployment, Node, Tenant
from kvaudit.server.inquiries.models import LogPart
from kvaudit.server.inquiries.request_logs.import_worker import Parts
from kvaudit.server.notify.models import Channel
from kvaudit.server.notify.services import opened
from tests import factories
from tests.factories import loaded_target
from tests.server.inquiries.request_logs.imports import LOG, begun

pytestmark = pytest.mark.django_db

STEPS = (
    "kvaudit.server.fleet.migrations.0006_keys_bound_to_addresses",
    "kvaudit.server.notify.migrations.0005_secrets_bound_to_channels",
    "kvaudit.server.inquiries.migrations.0010_parts_bound_to_imports",
)
BEARER = json.dumps([["Authorization", "Bearer sk-old"]])


@pytest.fixture
def old(settings: Any) -> Any:
    """Seals as the first release did."""
    fernet = Fernet(settings.ENCRYPTION_KEYS[0])
    return lambda text: fernet.encrypt(text.encode()).decode()


def upgrade() -> None:
    for step in STEPS:
        import_module(step).bind(apps, None)


def test_stored_keys_go_on_where_they_went(old: Any) -> None:
    deployment = factories.a_deployment("d", entry="http://gw.example")
    factories.a_node(deployment, "n", url="http://10.0.0.1:1", headers_sealed=old(BEARER))
    Tenant.objects.create(
        deployment=deployment, name="a", credential_sealed=old(BEARER), salt_sealed=old("salt")
    )
    channel = Channel.objects.create(
        name="c", kind="webhook", address_sealed=old("https://h.example/x?y"), secret_sealed=old("s")
    )
    with pytest.raises(SealBroken, match="Enter it again"):
        loaded_target(Deployment.objects.get())
    upgrade()
    target = loaded_target(Deployment.objects.get())
    assert target.nodes[0].credentials.headers == (("Authorization", "Bearer sk-old"),)
    assert target.tenants[0].credentials.headers == (("Authorization", "Bearer sk-old"),)
    assert target.tenants[0].salt == "salt"
    assert opened(Channel.objects.get(pk=channel.pk)) == ("https://h.example/x?y", "s")
    Deployment.objects.update(entry="http://evil.example")
    assert loaded_target(Deployment.objects.get()).tenants == ()


def test_an_upload_that_waits_is_read(old: Any) -> None:
    work = begun(LOG)
    part = LogPart.objects.get(work=work)
    LogPart.objects.filter(pk=part.pk).update(sealed=old(LOG.decode("latin-1")))
    upgrade()
    assert io.BufferedReader(Parts(work)).read() == LOG


def test_what_is_gone_keeps_no_key(old: Any) -> None:
    now = timezone.now()
    live, retired = factories.a_deployment("live"), factories.a_deployment("retired", retired_at=now)
    factories.a_node(live, "gone", valid_from=now, valid_to=now, headers_sealed=old(BEARER))
    factories.a_node(retired, "n", headers_sealed=old(BEARER))
    Tenant.objects.create(deployment=retired, name="a", credential_sealed=old(BEARER), salt_sealed=old("s"))
    upgrade()
    assert {node.headers_sealed for node in Node.objects.all()} == {""}
    assert {(tenant.credential_sealed, tenant.salt_sealed) for tenant in Tenant.objects.all()} == {("", "")}


def test_a_key_that_nobody_can_open_is_left_and_must_be_entered_again(old: Any) -> None:
    deployment = factories.a_deployment("d", entry="http://gw.example")
    factories.a_node(deployment, "n")
    strange = Fernet(Fernet.generate_key()).encrypt(BEARER.encode()).decode()
    Tenant.objects.create(deployment=deployment, name="a", credential_sealed=strange)
    upgrade()
    assert Tenant.objects.get().credential_sealed == strange
    problem = loaded_target(Deployment.objects.get()).tenants_problem
    assert "tenant a" in problem
    assert "Enter it again" in problem


def test_a_bound_key_is_left_as_it_is(old: Any) -> None:
    deployment = factories.a_deployment("d", entry="http://gw.example")
    factories.a_node(deployment, "n", headers_sealed=old(BEARER))
    upgrade()
    before = list(Node.objects.values())
    upgrade()
    assert list(Node.objects.values()) == before
