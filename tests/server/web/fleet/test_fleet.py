"""Fleet: whether anybody is at risk must be the first thing said, with numbers, and unknown as unknown."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kvaudit.server.incidents.models import Incident
from kvaudit.server.notify.services import create_channel
from tests.factories import a_deployment, a_team, a_user
from tests.server.web import builders
from tests.server.web.pages import page_text

PASS = dict.fromkeys(builders.REQUIRED, "pass")


def headline(client) -> str:
    page = page_text(client.get("/"))
    found = re.search(r'<h1 class="lead">(.*?)</h1>', page, re.S)
    assert found
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", found[1])).strip()


def test_nothing_known_is_said_and_an_operator_gets_a_way_to_start(people):
    page = page_text(people.operator.get("/"))
    assert "nothing is known" in page
    assert "/import/?sample=1" in page
    assert "/import/" not in page_text(people.viewer.get("/")), "a viewer cannot import"


def test_who_is_at_risk_is_named(people):
    for number in range(3):
        builders.a_state(
            builders.a_pair(f"ok-{number}", team=people.team), PASS, measures=builders.LARGE_POOL
        )
    bad = builders.a_pair("bad", team=people.team)
    builders.a_state(bad, {**PASS, "pool": "fail"}, measures=builders.SHORT_POOL)
    assert headline(people.viewer) == "1 of 4 deployments is unsafe: bad."
    assert "Failing: pool." in page_text(people.viewer.get("/"))


@pytest.mark.parametrize(
    ("verdicts", "expired", "said"),
    [
        (
            {**PASS, "pool": "inconclusive"},
            False,
            "Nothing is known to be unsafe, but 1 of 1 deployment is not verified.",
        ),
        (
            {**PASS, "version": "error"},
            False,
            "Nothing is known to be unsafe, but 1 of 1 deployment is not verified.",
        ),
        (PASS, True, "Nothing is known to be unsafe, but 1 of 1 deployment is not verified."),
        ({"pool": "pass"}, False, "Nothing is known to be unsafe, but 1 of 1 deployment is not verified."),
        (PASS, False, "1 of 1 deployment is OK: every required check passed and none has expired."),
    ],
)
def test_unknown_is_never_said_as_safe(people, pair, verdicts, expired, said):
    builders.a_state(pair, verdicts, expired=expired)
    assert headline(people.viewer) == said


def test_what_was_shown_is_told_apart_from_what_could_happen(people):
    leaking = builders.a_pair("leaking", team=people.team)
    builders.a_state(leaking, {**PASS, "pool": "fail", "canary": "fail"}, measures=builders.SHORT_POOL)
    said = headline(people.viewer)
    assert said == "Leak confirmed on 1 of 1 deployment: leaking."
    assert "shown by canary; also failing: pool." in page_text(people.viewer.get("/"))


def test_who_could_make_a_channel_is_told_that_there_is_none(people, pair):
    builders.a_state(pair, {**PASS, "pool": "fail"})
    client = Client()
    client.force_login(a_user(role="admin"))
    assert "Alerts are off:" in page_text(client.get("/"))
    assert "Alerts are off:" not in page_text(people.viewer.get("/"))
    create_channel(kind="email", name="ours", address="a@example.org", team=people.team, actor="system:tests")
    assert "Alerts are off:" not in page_text(client.get("/"))


def test_what_is_not_decided_is_named_and_one_click_away(people, pair):
    builders.a_state(pair, {**PASS, "drift": "inconclusive"})
    page = page_text(people.viewer.get("/"))
    assert "Not decided: drift." in page
    assert 'href="/?tier=not_verified"' in page


def test_the_headline_counts_everything_though_the_table_is_filtered(people):
    builders.a_fleet(people.team, 7)
    page = page_text(people.viewer.get("/?tier=ok"))
    assert "1 of 7 deployments is unsafe" in page
    assert "2 deployments of 7" in page


def test_strangers_see_nothing_of_other_teams(people, pair):
    builders.a_state(pair, {"pool": "fail"})
    page = page_text(people.stranger.get("/"))
    assert "chat-large" not in page
    assert "unsafe:" not in page


def test_the_danger_zone_is_drawn(people, pair):
    builders.a_state(pair, {"pool": "fail"}, measures=builders.SHORT_POOL)
    page = page_text(people.viewer.get("/"))
    assert 'fill="url(#hatch-danger)"' in page
    assert "danger zone 681,274 to 1,048,569" in page


def test_filters_sort_and_search_live_in_the_address(people):
    builders.a_fleet(people.team, 14)
    other = a_deployment("search-small", team=a_team("zz-search"), engine="vllm")

    def slugs(query: str) -> list[str]:
        page = page_text(people.operator.get(f"/?{query}"))
        return re.findall(r'<th scope="row"><a href="/d/([\w-]+)/"', page)

    assert other.slug not in slugs("")
    assert slugs("verdict=fail") == ["chat-000", "chat-007"], "addresses of before there were tiers"
    assert slugs("tier=unsafe") == ["chat-000", "chat-007"]
    assert slugs("tier=leak_confirmed") == []
    assert slugs("tier=ok") == ["chat-005", "chat-006", "chat-012", "chat-013"]
    assert slugs("q=chat+012") == ["chat-012"]
    assert slugs("engine=vllm") == []
    assert slugs("sort=name") == [f"chat-{number:03d}" for number in range(14)]
    assert slugs("sort=risk")[:2] == ["chat-000", "chat-007"]
    assert slugs("sort=audited")[:2] == ["chat-004", "chat-011"], "never audited comes first"


def test_pages_follow_each_other_without_loss(people):
    builders.a_fleet(people.team, 120)
    seen: list[str] = []
    address = "/?sort=name"
    for _ in range(5):
        page = page_text(people.operator.get(address))
        seen += re.findall(r'<th scope="row"><a href="/d/([\w-]+)/"', page)
        following = re.search(r'rel="next" href="([^"]+)"', page)
        if following is None:
            break
        address = "/" + following[1].replace("&amp;", "&")
    assert seen == [f"chat-{number:03d}" for number in range(120)]
    back = re.search(r'rel="prev" href="([^"]+)"', page)
    assert back
    page = page_text(people.operator.get("/" + back[1].replace("&amp;", "&")))
    assert re.findall(r'<th scope="row"><a href="/d/([\w-]+)/"', page)[0] == "chat-050"


def test_an_incident_that_is_not_closed_is_marked_on_its_deployment_and_leads_to_it(people, pair):
    builders.a_pair("calm", team=people.team)

    def marks() -> list[tuple[str, str]]:
        page = page_text(people.viewer.get("/"))
        cells = re.findall(r'<a href="(/incidents/\d+/)">(.*?</a>[^<]*)</div>', page, re.S)
        assert all('<use href="#shape-' in text for _, text in cells)
        return [(address, re.sub(r"<[^>]*>", "", text)) for address, text in cells]

    assert marks() == []
    incident = Incident.objects.create(
        deployment=pair, kind="leak", title="Foreign text", severity="critical", opened_by="tests"
    )
    address = f"/incidents/{incident.pk}/"
    assert marks() == [(address, f"open incident {incident.pk}")]
    Incident.objects.filter(pk=incident.pk).update(state="restored", restored_at=timezone.now())
    assert marks() == [(address, f"incident {incident.pk}, restored")]
    Incident.objects.filter(pk=incident.pk).update(state="closed", closed_at=timezone.now())
    assert marks() == []


def test_tiles_count_every_tier_and_filter(people):
    builders.a_fleet(people.team, 7)
    leaking = builders.a_pair("leaking", team=people.team)
    builders.a_state(leaking, {**PASS, "canary": "fail"})
    page = page_text(people.viewer.get("/?tier=unsafe"))
    tiles = re.findall(
        r'class="tile" href="/\?tier=(\w+)"[^>]*?( aria-current="true")?>.*?<b class="count">(\d+)',
        page,
        re.S,
    )
    assert [(name, int(count)) for name, _, count in tiles] == [
        ("leak_confirmed", 1), ("unsafe", 1), ("not_verified", 4), ("ok", 2),
    ]  # fmt: skip
    assert [name for name, current, _ in tiles if current] == ["unsafe"]


def test_an_incident_is_above_the_table_with_its_action(people, pair):
    incident = Incident.objects.create(
        deployment=pair, kind="leak", title="Foreign text", severity="critical", opened_by="tests"
    )
    page = page_text(people.viewer.get("/"))
    assert page.index(f"Open incident {incident.pk}</a>") < page.index("<table")
    assert f'<a class="button" href="/incidents/{incident.pk}/">' not in page_text(people.stranger.get("/"))


def test_controls_are_said_beside_the_status(people, pair):
    builders.a_state(pair, PASS)
    page = page_text(people.viewer.get("/"))
    assert re.search(r'<a href="/d/chat-large/checks/#checklist">\d of 9</a>', page)


def test_queries_do_not_grow_with_the_fleet(people):
    builders.a_fleet(people.team, 5)
    few = _queries(people.operator, "/")
    builders.a_pair("another", team=people.team)
    for number in range(20):
        builders.a_state(builders.a_pair(f"more-{number}", team=people.team), PASS)
    assert _queries(people.operator, "/") == few
    assert few <= 26


def _queries(client, path: str) -> int:
    client.get(path)
    with CaptureQueriesContext(connection) as seen:
        client.get(path)
    return len(seen)


def test_a_warning_is_named_and_leads_to_its_run(people, pair):
    run = builders.a_state(pair, PASS)
    pair.check_states.filter(check_id="version").update(
        warn=True, summary="An advisory may apply: <b>unknown</b>."
    )
    for path in ("/", "/d/chat-large/"):
        page = page_text(people.viewer.get(path))
        said = re.search(r'<span class="warn">warning</span>(.*?)</a>', page, re.S)
        assert said, path
        assert "version" in said[1]
        assert "&lt;b&gt;unknown" in said[1]
        assert f'href="/runs/{run.pk}/#check-version"' in said[1]
    assert '<span class="warn">warning: version</span>' in page_text(people.viewer.get("/compliance/"))
