"""Settings: one line each, with the state that the reader may know."""

from __future__ import annotations

import pytest
from django.test import Client

from kvaudit.fleet.services import pause_probes
from kvaudit.notify.channels import create_channel
from tests.factories import a_user, an_admin
from tests.web import scene


def as_(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_an_administrator_reaches_every_setting(people, pair):
    page = as_(an_admin()).get("/settings/").content.decode()
    for address in ("/import/", "/plans/", "/plans/#probes", "/checklist/", "/zone/", "/password/"):
        assert f'href="{address}"' in page
    assert "none, so nobody is told" in page
    assert 'href="/settings/" aria-current="page"' in page


def test_a_reader_is_told_who_may_and_learns_nothing_of_others(people, pair):
    create_channel(kind="email", name="x", address="a@example.org", actor="system:tests")
    page = people.viewer.get("/settings/").content.decode()
    assert 'href="/import/"' not in page
    for sentence in ("Managed by administrators.", "Read by auditors of every team.", "1 deployment;"):
        assert sentence in page
    assert "1 channel" not in page
    assert "0 deployments;" in as_(a_user()).get("/settings/").content.decode()


def test_what_needs_a_hand_is_marked(people, pair):
    before = people.operator.get("/settings/").content.decode()
    assert "not paused" in before
    scene.a_plan(pair)
    pause_probes(actor=people.operating_user, deployment=pair)
    after = people.operator.get("/settings/").content.decode()
    assert '<span class="warn">look</span> <bdi>1 deployment paused</bdi>' in after
    assert "<bdi>1 plan</bdi>" in after


@pytest.mark.parametrize("count", [1, 6])
def test_the_index_takes_as_many_queries_for_any_fleet(people, count, django_assert_num_queries):
    for number in range(count):
        scene.a_pair(f"chat-{number}", team=people.team)
    client = as_(an_admin())
    with django_assert_num_queries(19):
        client.get("/settings/")
