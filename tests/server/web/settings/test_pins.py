"""Pins: everybody sees those that concern them, operators set them, and what is unknown is not met."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from kvaudit.server.fleet.models import NodeSnapshot, Pin
from kvaudit.server.fleet.services import set_pin
from kvaudit.server.ledger.models import Entry
from tests.factories import a_deployment, a_node, a_user
from tests.server.web import builders
from tests.server.web.pages import page_text

LIST, ONE = "/settings/pins/", "/settings/pins/chat-large/"
GOOD = {"act": "set", "engine": "sglang", "wanted": ">=0.5.23", "reason": "KVA-001"}


def fleetwide(role: str = "operator") -> Client:
    client = Client()
    client.force_login(a_user(role=role))
    return client


def read(client: Client, path: str = LIST) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return page_text(answer)


def test_the_list_says_what_runs_against_which_pin(people, pair):
    builders.a_pair("chat-old", team=people.team, version="0.5.19")
    page = read(people.viewer)
    assert "2 deployments: 1 outside the pin, 1 met." in page
    assert page.index("chat-old") < page.index("chat-large"), "the worst first"
    assert "0123456789abcdef" in page
    assert "shipped" in page
    assert "Set the pin" not in page


def test_a_pin_is_set_with_its_reason_and_ended(people, pair):
    answer = people.operator.post(ONE, GOOD, follow=True)
    assert answer.redirect_chain == [(ONE, 302)]
    pin = Pin.objects.get()
    assert (pin.deployment, pin.specifier, pin.reason) == (pair, ">=0.5.23", "KVA-001")
    page = page_text(answer)
    assert "outside its pin" in page
    assert f"by <bdi>user:{people.operating_user.get_username()}</bdi>" in page
    assert "The next run of the check version judges by it." in page
    ended = page_text(people.operator.post(ONE, {"act": "end", "engine": "sglang"}, follow=True))
    assert "The pin of sglang has ended." in ended
    assert "Earlier pins of this deployment" in ended
    assert not Pin.objects.current().exists()
    again = page_text(people.operator.post(ONE, {"act": "end", "engine": "sglang"}, follow=True))
    assert "There was no such pin any more." in again
    assert Entry.objects.filter(kind="pin.ended").count() == 1


def test_what_runs_now_is_pinned_exactly(people, pair):
    page = read(people.operator, ONE)
    wanted = re.search(r'name="wanted" value="(==[^"]+)"', page)
    assert wanted is not None
    people.operator.post(ONE, {**GOOD, "wanted": wanted[1]})
    assert Pin.objects.get().specifier == "==0.5.22"
    assert "pin met" in read(people.operator, ONE)


@pytest.mark.parametrize("version", ["", "latest", "0.5.20.dev7"])
def test_a_build_that_cannot_be_told_is_not_met_and_cannot_be_pinned(people, pair, version):
    NodeSnapshot.objects.filter(node__name="decode-0").update(version=version)
    page = read(people.operator, ONE)
    assert "cannot be pinned exactly" in page
    assert ("not decided" in page) == (version != "0.5.20.dev7")
    assert "1 deployment: 1 met" not in read(people.viewer)


def test_an_unread_node_keeps_the_deployment_from_being_met(people, pair):
    a_node(pair, "decode-1", role="decode")
    assert "1 deployment: 1 not read yet." in read(people.viewer)
    assert "a node was never read" in read(people.viewer)
    assert "never read" in read(people.viewer, ONE)


def test_a_router_has_no_version_to_pin(people, pair):
    router = a_node(pair, "router-0")
    builders.a_snapshot(router, version="", kind="router")
    assert "1 deployment: 1 met." in read(people.viewer)
    assert "router-0" not in read(people.viewer, ONE)


def test_an_engine_without_pin_is_said_to_have_none(people, pair):
    NodeSnapshot.objects.update(engine="vllm")
    assert "1 deployment: 1 without pin." in read(people.viewer)
    set_pin(engine="vllm", specifier=">=0.5", actor="system:tests")
    assert "1 deployment: 1 met." in read(people.viewer)


def test_the_fleet_s_pin_is_set_by_who_operates_every_team(people, pair):
    assert people.operator.post(LIST, GOOD).status_code == 403
    client = fleetwide()
    page = page_text(client.post(LIST, GOOD, follow=True))
    assert "The pin is sglang&gt;=0.5.23 now." in page
    assert Pin.objects.get().deployment is None
    assert "the fleet’s" in page
    assert "for the fleet" in read(people.viewer, ONE)
    assert 'value="end"' not in read(people.operator, ONE), "only where it was set"
    client.post(LIST, {"act": "end", "engine": "sglang"})
    assert not Pin.objects.current().exists()


@pytest.mark.parametrize("act", [GOOD, {"act": "end", "engine": "sglang"}])
def test_readers_are_refused_and_strangers_find_nothing(people, pair, act):
    set_pin(engine="sglang", specifier="==0.5.22", actor="system:tests", deployment=pair)
    for client in (people.viewer, people.auditor):
        assert client.post(ONE, act).status_code == 403
    for method in ("get", "post"):
        assert getattr(people.stranger, method)(ONE, act).status_code == 404
    assert [pin.specifier for pin in Pin.objects.current()] == ["==0.5.22"]
    assert "chat-large" not in read(people.stranger)
    assert "Set the pin" not in read(people.viewer, ONE)


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [("0.5.22", "==0.5.22"), ("v0.5.22", "==0.5.22"), (" >=0.5.22 , <0.6 ", ">=0.5.22 , <0.6"), ("~=0.5.22", "~=0.5.22"),
     ("==0.5.*", "==0.5.*")],
)  # fmt: skip
def test_versions_and_ranges_are_understood(people, pair, wanted, kept):
    people.operator.post(ONE, {**GOOD, "wanted": wanted})
    assert Pin.objects.get().specifier == kept


@pytest.mark.parametrize(
    "change",
    [{"wanted": ""}, {"wanted": "newest"}, {"wanted": "latest"}, {"wanted": "0.5.20.dev7"}, {"wanted": ">=0.5.22; rm"},
     {"wanted": ">=" + "9" * 200}, {"wanted": ">=0.5\x00"}, {"wanted": "=0.5.22"}, {"wanted": "<script>alert(1)</script>"},
     {"wanted": "\u202e>=0.5"}, {"engine": "telepathy"}, {"engine": ""}, {"reason": "x" * 10_000}, {"reason": "a\x00"}],
)  # fmt: skip
def test_a_mistake_is_named_and_nothing_is_set(people, pair, change):
    answer = people.operator.post(ONE, {**GOOD, **change})
    assert answer.status_code == 422
    page = page_text(answer)
    assert "Nothing was saved" in page
    assert "<script>alert" not in page
    assert not Pin.objects.exists()


def test_hostile_reasons_and_versions_are_only_shown(people, pair):
    evil = "<script>alert(1)</script>\u202e=1+1"
    set_pin(engine="sglang", specifier="==0.5.22", actor="system:tests", deployment=pair, reason=evil)
    NodeSnapshot.objects.update(version=evil)
    for path in (LIST, ONE):
        page = read(people.operator, path)
        assert "<script>alert" not in page
        assert "\u202e" not in page


@pytest.mark.parametrize("query", ["q=%00", "q=" + "x" * 5_000, "state=odd", "after=~", "before=zzz", "after=%E2%80%AE", "state=met&q=chat"])  # fmt: skip
def test_odd_filters_never_break_the_list(people, pair, query):
    read(people.viewer, f"{LIST}?{query}")


def test_filters_and_pages_follow_each_other(people, monkeypatch):
    monkeypatch.setattr("kvaudit.server.web.settings.pins.page.PAGE_SIZE", 3)
    for number in range(7):
        builders.a_pair(f"chat-{number}", team=people.team, version="0.5.19" if number % 2 else "0.5.22")
    names = lambda path: re.findall(r"/settings/pins/(chat-\d)/", read(people.viewer, path))  # noqa: E731
    seen, path = [], f"{LIST}?q=chat"
    while path:
        seen += names(path)
        onward = re.search(r'rel="next" href="(\?[^"]+)"', read(people.viewer, path))
        path = f"{LIST}{onward[1].replace('&amp;', '&')}" if onward else ""
    assert seen == ["chat-1", "chat-3", "chat-5", "chat-0", "chat-2", "chat-4", "chat-6"]
    assert names(f"{LIST}?state=outside") == ["chat-1", "chat-3", "chat-5"]
    assert names(f"{LIST}?q=chat&before=4~chat-4") == ["chat-5", "chat-0", "chat-2"]


def test_both_pages_take_as_many_queries_for_any_fleet(people, pair, django_assert_num_queries):
    for round in range(2):
        with django_assert_num_queries(9):
            read(people.viewer)
        with django_assert_num_queries(9):
            read(people.viewer, ONE)
        for number in range(5):
            more = builders.a_pair(f"chat-{round}-{number}", team=people.team)
            set_pin(engine="sglang", specifier="==0.5.22", actor="system:tests", deployment=more)
            a_node(pair, f"decode-{round}-{number}")


def test_the_deployment_leads_to_its_pins(people, pair):
    assert f'href="{ONE}"' in page_text(people.viewer.get("/d/chat-large/settings/"))


def test_a_retired_deployment_still_shows_its_pins(people):
    from django.utils import timezone

    a_deployment("gone", team=people.team, retired_at=timezone.now())
    assert "No node is listed" in read(people.viewer, "/settings/pins/gone/")
    assert "gone" not in read(people.viewer)


def test_a_pin_for_an_engine_that_nothing_reads_is_refused(people, pair):
    """It would decide nothing; one that the release before took can still be ended."""
    Pin.objects.create(engine="sglnag", specifier=">=1", set_by="ada")
    answer = fleetwide().post("/settings/pins/", {"engine": "sglnag", "wanted": ">=0.5.22", "reason": ""})
    assert "did you mean sglang?" in page_text(answer)
    fleetwide().post("/settings/pins/", {"act": "end", "engine": "sglnag"})
    assert not Pin.objects.current().filter(engine="sglnag").exists()
    with pytest.raises(ValueError, match="did you mean sglang"):
        set_pin(engine="sglnag", specifier=">=0.5", actor="system:tests")
