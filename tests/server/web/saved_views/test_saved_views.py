"""Saved views of the pages with filters: kept, listed, shared with a team, removed; and who may do what."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from kvaudit.server.inquiries.models import SavedView
from kvaudit.server.inquiries.saved_views import services
from tests.factories import a_user, an_admin
from tests.server.web import builders
from tests.server.web.pages import page_text

EVIL = "=cmd|' /C calc'!A0<script>alert(1)</script>\u202e" + "x" * 10_000
PAGES = {
    "fleet": ("/", "verdict=fail&item=1"),
    "compliance": ("/compliance/", "status=waived&sort=risk"),
    "history": ("/history/", "verdict=fail"),
}
everywhere = pytest.mark.parametrize("page", PAGES)


def save(client, page, name="Fails", query=None, **fields):
    query = PAGES[page][1] if query is None else query
    return client.post("/views/", {"page": page, "name": name, "query": query, **fields})


def a_client(user):
    client = Client()
    client.force_login(user)
    return client


def test_every_page_with_views_is_tried_here():
    assert set(PAGES) == set(services.PAGES)


@everywhere
def test_a_view_is_saved_listed_opened_and_removed(people, pair, page):
    path, query = PAGES[page]
    answer = save(people.viewer, page, " Fails  of pool ", f"?{query}&after=x~y&before=7&q=")
    view = SavedView.objects.get()
    assert (view.name, view.query, view.page, view.team) == ("Fails of pool", query, page, None)
    assert answer["Location"] == f"/views/{view.key}/"
    assert people.viewer.get(answer["Location"])["Location"] == f"{path}?{query}"
    listed = page_text(people.viewer.get(path))
    assert f'<a href="/views/{view.key}/"><bdi>Fails of pool</bdi></a>' in listed
    assert f'<a href="/views/{view.key}/" aria-current="true">' in page_text(
        people.viewer.get(f"{path}?{query}&q=")
    )
    for other in set(PAGES) - {page}:
        assert "Fails of pool" not in page_text(people.viewer.get(PAGES[other][0]))
    assert people.viewer.post(f"/views/{view.key}/remove/")["Location"] == path
    assert not SavedView.objects.exists()


@everywhere
def test_a_view_of_ones_own_is_nobody_elses(people, pair, page):
    path, query = PAGES[page]
    save(people.viewer, page, "Fails of pool")
    view = SavedView.objects.get()
    for client in (people.operator, people.stranger):
        assert "Fails of pool" not in page_text(client.get(path))
        assert client.post(f"/views/{view.key}/remove/").status_code == 404
        # Whoever was handed the link may open it: it holds filters, and they see what they may see.
        assert client.get(f"/views/{view.key}/")["Location"] == f"{path}?{query}"
    assert SavedView.objects.exists()


@everywhere
def test_a_shared_view_is_listed_for_the_team_and_nobody_else(people, pair, page):
    path, _ = PAGES[page]
    save(people.operator, page, "Ours", share=people.team.slug)
    view = SavedView.objects.get()
    assert view.team == people.team
    listed = page_text(people.viewer.get(path))
    assert "<bdi>Ours</bdi>" in listed
    assert f"by <bdi>{people.operating_user.username}</bdi>" in listed
    assert "Remove the view Ours" not in listed
    assert people.viewer.post(f"/views/{view.key}/remove/").status_code == 404
    assert "Ours" not in page_text(people.stranger.get(path)).replace("hours", "")
    # Saved again for oneself alone, the team no longer lists it.
    save(people.operator, page, "Ours")
    assert SavedView.objects.get().team is None
    assert "<bdi>Ours</bdi>" not in page_text(people.viewer.get(path))


def test_a_view_is_shared_only_with_a_team_that_one_sees(people, pair):
    for share in ("nobody", "\0", "x" * 10_000, "' OR 1=1"):
        answer = save(people.stranger, "fleet", share=share)
        assert answer.status_code == 422
    answer = save(people.stranger, "fleet", share=people.team.slug)
    assert "You see no team of that name" in page_text(answer)
    assert not SavedView.objects.exists()


def test_who_administers_the_team_may_remove_what_its_members_share(people, pair):
    boss = a_client(a_user(team=people.team, role="admin"))
    save(people.operator, "fleet", "Ours", share=people.team.slug)
    save(people.operator, "fleet", "Mine")
    mine = SavedView.objects.get(name="Mine")
    shared = SavedView.objects.get(name="Ours")
    assert boss.post(f"/views/{mine.key}/remove/").status_code == 404
    assert people.stranger.post(f"/views/{shared.key}/remove/").status_code == 404
    assert "Remove the view Ours" in page_text(boss.get("/"))
    assert boss.post(f"/views/{shared.key}/remove/").status_code == 302
    assert list(SavedView.objects.all()) == [mine]


@everywhere
def test_a_name_is_used_once_and_names_are_text(people, pair, page):
    path, _ = PAGES[page]
    for query in ("verdict=fail", "q=%3Cscript%3E&verdict=pass"):
        save(people.operator, page, EVIL[:80], query, share=people.team.slug)
    assert SavedView.objects.get().query == "q=%3Cscript%3E&verdict=pass"
    for client in (people.operator, people.viewer):
        listed = page_text(client.get(f"{path}?q=%22%3E%3Cscript%3Ealert(1)"))
        assert "<script>alert" not in listed
        assert "\u202e" not in listed
        assert len(listed) < 60_000


@pytest.mark.parametrize("name", ["", "   ", "\n\t"])
def test_a_view_without_a_name_is_refused_in_words(people, pair, name):
    answer = save(people.viewer, "fleet", name, "verdict=fail&after=x")
    assert answer.status_code == 422
    assert 'href="/?verdict=fail&amp;after=x"' in page_text(answer), "the filters are still there"
    assert "Give the view a name." in page_text(answer)
    assert not SavedView.objects.exists()


def test_limits_are_said_in_words(people, pair, monkeypatch):
    monkeypatch.setattr(services, "MOST", 2)
    second = a_client(a_user(team=people.team))
    for number in range(3):
        answer = save(people.viewer, "fleet", f"view {number}", share=people.team.slug)
    assert "You have 2 saved views" in page_text(answer)
    answer = save(second, "fleet", "one more", share=people.team.slug)
    assert f"{people.team.slug} shares 2 views" in page_text(answer)
    assert save(people.viewer, "fleet", "view 1", "verdict=pass", share=people.team.slug).status_code == 302
    assert SavedView.objects.get(name="view 1").query == "verdict=pass", "replacing one is no new one"
    answer = save(people.viewer, "history", "long", "q=" + "x" * 3_000)
    assert "longer than a view can hold" in page_text(answer)
    assert SavedView.objects.count() == 2


def test_what_is_not_there_is_a_404(people):
    assert people.viewer.get(f"/views/{uuid4()}/").status_code == 404
    assert people.viewer.post(f"/views/{uuid4()}/remove/").status_code == 404
    for page in ("", "run", "admin:index", "\0", "x" * 10_000):
        assert people.viewer.post("/views/", {"page": page, "name": "x", "query": ""}).status_code == 404


@everywhere
def test_a_views_address_leads_nowhere_else(people, page):
    save(people.viewer, page, "odd", "https://example.com/?next=//example.org\r\nX: y")
    path, view = PAGES[page][0], SavedView.objects.get()
    target = people.viewer.get(f"/views/{view.key}/")["Location"]
    assert target == path or target.startswith(f"{path}?")


@everywhere
def test_the_number_of_queries_is_fixed(people, pair, page):
    path, _ = PAGES[page]
    builders.a_state(pair, {"pool": "pass"})
    client = a_client(an_admin())

    def count():
        client.get(path)
        with CaptureQueriesContext(connection) as seen:
            client.get(path)
        return len(seen)

    few = count()
    for number in range(8):
        save(client, page, f"mine {number}")
        save(people.operator, page, f"ours {number}", share=people.team.slug)
    assert count() == few
