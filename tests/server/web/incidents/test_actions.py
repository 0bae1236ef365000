"""Action items of every incident on one page: late ones said so, others' not shown, hostile words tamed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.server.incidents.models import ActionItem
from tests.factories import a_user
from tests.server.incidents.builders import an_incident
from tests.server.web.pages import page_text

EVIL = "<script>alert(1)</script>\u202e=1+1"


@pytest.fixture
def items(people, pair):
    incident = an_incident(pair)
    today = timezone.localdate()
    ada, bob = a_user("ada", team=people.team), a_user("bob", team=people.team)
    made = [
        ("No date", bob, None, "open"),
        ("Later", bob, today + timedelta(days=3), "reopened"),
        ("Late " + EVIL, ada, today - timedelta(days=1), "open"),
        ("Nobody's", None, today, "open"),
        ("Finished", ada, today - timedelta(days=9), "done"),
    ]
    return [
        ActionItem.objects.create(incident=incident, title=title, owner=owner, due=due, state=state)
        for title, owner, due, state in made
    ]


def read(person, query=""):
    answer = person.get(f"/incidents/actions/{query}")
    assert answer.status_code == 200
    return page_text(answer)


def test_what_is_due_first_comes_first(people, items):
    page = read(people.viewer)
    places = [page.index(word) for word in ("Late ", "Nobody", "Later", "No date")]
    assert places == sorted(places)
    assert "4 action items; " in page
    assert page.count(">overdue<") == 1
    assert "1 overdue" in page
    assert "Finished" not in page
    assert "<script>alert" not in page
    assert "\u202e" not in page


def test_filters(people, items):
    assert "Finished" in read(people.viewer, "?state=done")
    assert "overdue" not in read(people.viewer, "?state=done")
    mine = read(people.viewer, "?owner=AD")
    assert "Late " in mine
    assert "Later" not in mine
    assert "No action item matches." in read(people.viewer, "?owner=nobody-of-that-name%00")
    assert "Later" in read(people.viewer, "?state=nonsense")


def test_strangers_see_none(people, items):
    assert "Nothing is to do" in read(people.stranger)


def test_one_page_leads_to_the_other(people, items):
    assert 'href="/incidents/actions/"' in page_text(people.viewer.get("/incidents/"))


def test_queries_do_not_grow(people, items, django_assert_max_num_queries):
    with django_assert_max_num_queries(6):
        read(people.viewer)
