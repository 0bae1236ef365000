"""Teams: who decides, whose deployments nobody owns, a new one, another name."""

from __future__ import annotations

import pytest
from django.test import Client

from kvaudit.server.accounts.models import Team, User
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.ledger.models import Entry
from tests.factories import a_deployment, a_team, a_user, an_admin
from tests.server.web.pages import page_text

TEAMS = "/settings/teams/"


def as_(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_a_member_sees_their_team_and_who_decides_for_it(people, pair):
    a_user("ulla", team=people.team, role="approver")
    left = a_user("left", team=people.team, role="admin")
    User.objects.filter(pk=left.pk).update(is_active=False)
    a_deployment(team=people.team)
    a_team("elsewhere")
    page = page_text(people.viewer.get(TEAMS))
    assert "<bdi>ulla</bdi> (approver)" in page
    assert "left" not in page
    assert "1 without an owner" in page
    assert "elsewhere" not in page
    detail = page_text(people.viewer.get(f"{TEAMS}{people.team.slug}/"))
    assert '<bdi>left</bdi> <span class="tag">deactivated' in detail
    assert "Rename" not in detail


def test_retired_deployments_are_not_counted_and_joins_do_not_multiply(people, pair):
    for _ in range(3):
        a_user(team=people.team)
    retired = a_deployment(team=people.team)
    Deployment.objects.filter(pk=retired.pk).update(retired_at=retired.created_at)
    page = page_text(people.viewer.get(f"{TEAMS}{people.team.slug}/"))
    assert ">1, how they comply<" in page
    assert "without an owner" not in page


def test_who_may(people):
    path = f"{TEAMS}{people.team.slug}/"
    assert people.stranger.get(path).status_code == 404
    assert people.stranger.post(path, {"name": "Theirs"}).status_code == 404
    for client in (people.operator, people.viewer):
        assert client.get(path).status_code == 200
        assert client.post(path, {"name": "Ours"}).status_code == 403
        assert client.post(TEAMS, {"name": "New"}).status_code == 403
    people.team.refresh_from_db()
    assert people.team.name == people.team.slug
    assert not Team.objects.filter(slug="new").exists()


def test_a_team_is_made_and_renamed(people):
    chief = as_(an_admin())
    assert chief.post(TEAMS, {"name": "Core Serving"})["Location"] == f"{TEAMS}core-serving/"
    assert chief.post(TEAMS, {"name": "開発", "slug": "dev"})["Location"] == f"{TEAMS}dev/"
    head = as_(a_user(team=Team.objects.get(slug="dev"), role="admin"))
    page = page_text(head.post(f"{TEAMS}dev/", {"name": "<b>\u202eDev</b>"}, follow=True))
    assert '&lt;b&gt;<span class="ctrl">U+202E</span>Dev&lt;/b&gt;' in page
    assert Team.objects.get(slug="dev").name == "<b>\u202eDev</b>"
    assert Entry.objects.filter(kind="team.renamed").count() == 1


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ({"name": ""}, "required"),
        ({"name": "開発"}, "Give a slug"),
        ({"name": "x\x00"}, "Null characters"),
        ({"name": "x" * 10_000}, "at most 200"),
        ({"name": "Core", "slug": "../etc"}, "valid"),
        ({"name": "taken"}, "There is a team taken already."),
    ],
)
def test_a_mistake_is_a_sentence(db, form, sentence):
    a_team("taken")
    answer = as_(an_admin()).post(TEAMS, form)
    assert answer.status_code == 422
    assert sentence in page_text(answer)
    assert Team.objects.count() == 1


def test_a_name_of_signs_alone_is_refused_and_the_old_one_stays_in_sight(people):
    head = as_(a_user(team=people.team, role="admin"))
    page = page_text(head.post(f"{TEAMS}{people.team.slug}/", {"name": "---"}))
    assert "letters or digits" in page
    assert f"<h1><bdi>{people.team.slug}</bdi></h1>" in page


@pytest.mark.parametrize("count", [1, 9])
def test_the_list_takes_as_many_queries_for_any_number(db, count, django_assert_num_queries):
    for _ in range(count):
        team = a_team()
        a_user(team=team, role="approver")
        a_deployment(team=team)
    client = as_(an_admin())
    with django_assert_num_queries(6):
        client.get(TEAMS)


def test_teams_stand_by_slug(db):
    for slug in ("beta", "alpha", "gamma"):
        a_deployment(team=a_team(slug))
    page = page_text(as_(an_admin()).get(TEAMS))
    assert page.index("<bdi>alpha") < page.index("<bdi>beta") < page.index("<bdi>gamma")
