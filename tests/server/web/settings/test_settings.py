"""Settings: one line each, with the state that the reader may know."""

from __future__ import annotations

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from kvaudit.server.fleet.models import Tenant
from kvaudit.server.fleet.services import pause_probes, set_tenant_key
from kvaudit.server.notify.services import create_channel
from tests.factories import a_user, an_admin
from tests.server.web import builders
from tests.server.web.pages import page_text


def as_(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_an_administrator_reaches_every_setting(people, pair):
    page = page_text(as_(an_admin()).get("/settings/"))
    for address in ("/import/", "/plans/", "/plans/#probes", "/checklist/", "/zone/", "/password/"):
        assert f'href="{address}"' in page
    assert "alerts are off: no channel configured" in page
    assert 'href="/settings/" aria-current="page"' in page


def test_a_reader_is_told_who_may_and_learns_nothing_of_others(people, pair):
    create_channel(kind="email", name="x", address="a@example.org", actor="system:tests")
    page = page_text(people.viewer.get("/settings/"))
    assert 'href="/import/"' not in page
    for sentence in ("Managed by administrators.", "Read by auditors of every team.", "1 deployment;"):
        assert sentence in page
    assert "1 channel" not in page
    assert "0 deployments;" in page_text(as_(a_user()).get("/settings/"))


def test_what_needs_a_hand_is_marked(people, pair):
    before = page_text(people.operator.get("/settings/"))
    assert "not paused" in before
    builders.a_plan(pair)
    pause_probes(actor=people.operating_user, deployment=pair)
    after = page_text(people.operator.get("/settings/"))
    assert '<span class="warn">look</span> <bdi>1 deployment paused</bdi>' in after
    assert "<bdi>1 plan</bdi>" in after


def test_keys_that_do_not_open_are_said(people, pair, settings):
    tenants = [Tenant.objects.create(deployment=pair, name=name) for name in ("open", "shut", "without")]
    for tenant in tenants[:2]:
        set_tenant_key(tenant=tenant, key=f"key-{tenant.name}", actor="system:tests")
    assert "do not open" not in page_text(people.operator.get("/settings/"))
    settings.ENCRYPTION_KEYS = ["b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXIhISE="]
    set_tenant_key(tenant=tenants[0], key="key-open", actor="system:tests")
    page = page_text(people.operator.get("/settings/"))
    assert "the keys of 1 do not open with the ENCRYPTION_KEYS that kvaudit has" in page


def test_the_index_takes_as_many_queries_for_any_fleet(people):
    client, taken = as_(an_admin()), []
    for round in range(3):
        builders.a_plan(builders.a_pair(f"chat-{round}", team=people.team), name=f"plan-{round}")
        create_channel(kind="email", name="x", address="a@example.org", actor="system:tests")
        with CaptureQueriesContext(connection) as queries:
            client.get("/settings/")
        taken.append(len(queries))
    assert taken == [taken[0]] * 3
    assert taken[0] <= 25
