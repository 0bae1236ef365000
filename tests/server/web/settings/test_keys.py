"""Keys of the whole fleet: which are there, since when, by whom; what cannot run without; never the key."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from kvaudit.server.fleet.models import Tenant
from kvaudit.server.fleet.services import set_tenant_key
from tests.factories import a_user, an_admin
from tests.server.web import builders
from tests.server.web.pages import page_text

KEYS = "/settings/keys/"


def row_of(client: Client, slug: str, query: str = "") -> str:
    page = page_text(client.get(KEYS + query))
    return next((row for row in page.split("<tr>") if f"/d/{slug}/" in row), "")


def test_a_missing_second_key_means_that_the_canary_cannot_run(people, pair):
    first, second = (Tenant.objects.create(deployment=pair, name=name) for name in ("audit-a", "audit-b"))
    row = row_of(people.operator, "chat-large")
    assert row.count("no key") == 2
    assert "No tenant has a key" in row
    set_tenant_key(tenant=first, key="sk-secret-1", actor=people.operating_user)
    row = row_of(people.operator, "chat-large")
    assert "verdict-inconclusive" in row
    assert re.search(
        "second tenant’s key is missing: [^<]*canary[^<]* cannot run, so they stay inconclusive", row
    )
    assert "rejection" not in row, "one tenant is enough for it"
    assert f"by <bdi>user:{people.operating_user.username}</bdi>" in row
    set_tenant_key(tenant=second, key="sk-secret-2", actor="command:fleet")
    row = row_of(people.operator, "chat-large")
    assert "verdict-inconclusive" not in row
    assert "Every active check can ask" in row
    assert "sk-secret" not in row
    assert Tenant.objects.get(pk=second.pk).credential_sealed not in row


def test_a_removed_key_forgets_who_set_it(people, pair):
    tenant = Tenant.objects.create(deployment=pair, name="audit-a")
    set_tenant_key(tenant=tenant, key="sk-secret-1", actor="command:fleet")
    set_tenant_key(tenant=tenant, key="", actor="command:fleet")
    row = row_of(people.operator, "chat-large")
    assert "command:fleet" not in row
    assert "no key" in row


def test_a_key_of_before_this_was_recorded(people, pair):
    Tenant.objects.create(deployment=pair, name="audit-a", credential_sealed="sealed")
    assert "somebody not recorded" in row_of(people.operator, "chat-large")


def test_who_sees_and_who_sets(people, pair):
    assert 'href="/d/chat-large/keys/"' in row_of(people.operator, "chat-large")
    assert "set by its operators" in row_of(people.viewer, "chat-large")
    assert row_of(people.stranger, "chat-large") == ""
    assert people.viewer.post(KEYS).status_code == 405


def test_filters_are_in_the_address(people, pair):
    builders.a_pair("ranker", team=people.team)
    for name in "ab":
        Tenant.objects.create(deployment=pair, name=name, credential_sealed="sealed")
    assert row_of(people.operator, "chat-large", "?missing=yes") == ""
    assert row_of(people.operator, "ranker", "?missing=yes")
    assert row_of(people.operator, "ranker", "?q=chat") == ""
    for odd in ("q=%00", "missing=maybe", "after=%F0%9F%98%80", "before=zzz", "q=" + "x" * 5_000):
        assert people.operator.get(f"{KEYS}?{odd}").status_code == 200


def test_hostile_names_stay_words(people, pair):
    Tenant.objects.create(deployment=pair, name="<script>alert(1)</script>\u202e" + "w" * 200)
    row = row_of(people.operator, "chat-large")
    assert "<script>" not in row
    assert "U+202E" in row


def test_an_empty_fleet_says_what_to_do(db):
    client = Client()
    client.force_login(a_user())
    assert b"No deployment yet" in client.get(KEYS).content


@pytest.mark.parametrize("count", [1, 7])
def test_the_list_takes_as_many_queries_for_any_fleet(people, count, django_assert_num_queries):
    for number in range(count):
        deployment = builders.a_pair(f"chat-{number}", team=people.team)
        Tenant.objects.create(deployment=deployment, name="a")
    client = Client()
    client.force_login(an_admin())
    with django_assert_num_queries(7):
        client.get(KEYS)
