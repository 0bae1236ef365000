"""Users: who sees whom, who gives what, and secrets that are shown once."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from kvaudit.server.accounts import services
from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import User
from kvaudit.server.ledger.models import Entry
from tests.factories import a_team, a_user, an_admin
from tests.server.web.pages import page_text

USERS = "/settings/users/"
EVIL = "<script>alert(1)</script>\u202e"


def as_(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def of(user: User) -> str:
    return reverse("settings-user", args=[user.pk])


@pytest.fixture
def chief(db) -> User:
    return an_admin("chief")


@pytest.fixture
def local(people) -> User:
    """An administrator of the team alone."""
    return a_user("local", team=people.team, role="admin")


def test_an_administrator_sees_everybody_with_their_roles(people, chief):
    a_user("bystander")
    a_user("gone", team=people.team, role="approver")
    User.objects.filter(username="gone").update(is_active=False)
    page = page_text(as_(chief).get(USERS))
    assert f"<bdi>operator</bdi> in <bdi>{people.team.slug}</bdi>" in page
    assert "no role: sees nothing" in page
    assert re.search(r"gone</bdi></a> <span class=\"tag\">deactivated", page)
    assert 'href="/settings/users/new/"' in page


def test_filters_are_in_the_address(people, chief):
    a_user("ada-1", team=people.team, role="viewer")
    client = as_(chief)
    assert b"ada-1" in client.get(f"{USERS}?q=DA-1").content
    assert b"ada-1" not in client.get(f"{USERS}?q=zzz").content
    assert b"ada-1" in client.get(f"{USERS}?team={people.team.slug}&state=active").content
    assert b"ada-1" not in client.get(f"{USERS}?state=inactive").content
    for odd in (
        "q=%00",
        "state=green",
        "after=%F0%9F%98%80",
        "team=%27%3B--",
        "before=zzz",
        "q=" + "x" * 5_000,
    ):
        assert client.get(f"{USERS}?{odd}").status_code == 200


def test_pages_of_users_go_on_where_the_last_ended(chief):
    for number in range(130):
        User.objects.create(username=f"user-x{number:03d}")
    client = as_(chief)
    first = page_text(client.get(USERS))
    assert "user-x098" in first
    assert "user-x099" not in first
    following = re.search(r'rel="next" href="([^"]+)"', first)
    second = page_text(client.get(USERS + following[1]))
    assert "user-x099" in second
    assert "user-x098" not in second
    back = page_text(client.get(USERS + re.search(r'rel="prev" href="([^"]+)"', second)[1]))
    assert "user-x098" in back
    assert 'rel="prev"' not in back


def test_whoever_manages_one_team_sees_its_members_and_nothing_of_other_teams(people, local):
    other = a_team("secret-project")
    member = a_user("member", team=people.team, role="viewer")
    services.grant_role(user=member, team=other, role=services.Role.ADMIN, actor="system:tests")
    outsider = a_user("outsider", team=other)
    client = as_(local)
    page = page_text(client.get(USERS))
    assert "member" in page
    assert "outsider" not in page
    assert "secret-project" not in page + page_text(client.get(of(member)))
    assert client.get(of(outsider)).status_code == 404
    assert client.post(of(member), {"act": "revoke", "team": other.slug}).status_code == 404
    assert client.get("/settings/users/new/").status_code == 403
    for act in ("deactivate", "reactivate", "reset"):
        assert client.post(of(member), {"act": act}).status_code == 403
    assert client.post(of(member), {"act": "grant", "where": "*", "role": "viewer"}).status_code == 422
    client.post(of(member), {"act": "grant", "where": other.slug, "role": "viewer"})
    client.post(of(member), {"act": "revoke", "team": "*"})
    member = User.objects.get(pk=member.pk)
    assert not can(member, "view")
    assert can(member, "manage_accounts", other)


def test_who_may(people, chief):
    for client in (people.operator, people.auditor, people.viewer):
        for path in (USERS, "/settings/users/new/", of(chief)):
            assert client.get(path).status_code == 403
            assert client.post(path, {"act": "deactivate"}).status_code == 403
    assert people.stranger.get(of(people.operating_user)).status_code == 404
    assert User.objects.get(pk=chief.pk).is_active


def test_a_user_is_made_with_a_password_that_is_shown_once(people, chief):
    client = as_(chief)
    sent = {"username": "ada", "email": "ada@example.org", "where": people.team.slug, "role": "operator"}
    answer = client.post("/settings/users/new/", sent)
    page = page_text(answer)
    password = re.search(r"One-time password</dt><dd><code[^>]*>([^<]+)<", page)[1]
    assert "no-store" in answer["Cache-Control"]
    ada = User.objects.get(username="ada")
    assert ada.check_password(password)
    assert ada.must_change_password
    assert can(ada, "run_audits", people.team)
    for path in (of(ada), USERS):
        assert password not in page_text(client.get(path))
    assert password not in "".join(str(morsel) for morsel in client.cookies.values())
    assert password not in repr(list(Entry.objects.values_list()))
    again = client.post("/settings/users/new/", sent)
    assert b"already exists" in again.content, "the page sent a second time makes no second user"
    fresh = Client()
    assert fresh.post("/login/", {"username": "ada", "password": password})["Location"] == "/"
    assert fresh.get("/")["Location"] == "/password/"


def test_a_role_everywhere_or_none_at_all(chief):
    client = as_(chief)
    client.post("/settings/users/new/", {"username": "eve", "where": "*", "role": "auditor"})
    client.post("/settings/users/new/", {"username": "nil", "where": "", "role": "admin"})
    assert can(User.objects.get(username="eve"), "view_ledger")
    assert not can(User.objects.get(username="nil"), "view")


@pytest.mark.parametrize(
    "form",
    [
        {"username": ""},
        {"username": EVIL, "role": "viewer"},
        {"username": "a\x00b", "role": "viewer"},
        {"username": "x" * 10_000, "role": "viewer"},
        {"username": "ok", "role": "owner"},
        {"username": "ok", "role": "viewer", "where": "no-such-team"},
        {"username": "ok", "role": "viewer", "email": "=cmd|' /C calc'!A0"},
    ],
)
def test_a_mistake_is_a_sentence_and_makes_nobody(chief, form):
    answer = as_(chief).post("/settings/users/new/", form)
    assert answer.status_code == 422
    assert b'role="alert"' in answer.content
    assert EVIL.encode() not in answer.content
    assert list(User.objects.values_list("username", flat=True)) == ["chief"]


def test_roles_are_given_and_taken(people, chief):
    ada, client = a_user("ada"), as_(chief)
    client.post(of(ada), {"act": "grant", "where": people.team.slug, "role": "approver"})
    assert can(User.objects.get(pk=ada.pk), "approve", people.team)
    answer = client.post(of(ada), {"act": "revoke", "team": people.team.slug}, follow=True)
    assert b"holds no role" in answer.content
    assert not can(User.objects.get(pk=ada.pk), "view", people.team)
    kinds = list(Entry.objects.filter(actor="user:chief").values_list("kind", flat=True))
    assert kinds == ["role.granted", "role.revoked"]
    assert client.post(of(ada), {"act": "crown"}).status_code == 400
    assert client.post(of(ada), {"act": "grant", "role": "viewer"}).status_code == 422
    assert client.post(of(ada), {"act": "revoke", "team": "\x00"}).status_code == 404


def test_somebody_with_an_account_joins_a_team_by_name(people, local):
    a_user("ada")
    client = as_(local)
    sent = {"username": "ada", "where": people.team.slug, "role": "viewer"}
    assert client.post(USERS, sent).status_code == 302
    assert can(User.objects.get(username="ada"), "view", people.team)
    for name in ("nobody", "a\x00", ""):
        answer = client.post(USERS, {**sent, "username": name})
        assert answer.status_code == 422
        assert b'role="alert"' in answer.content


def test_the_last_administrator_stays(chief):
    client = as_(chief)
    for sent in (
        {"act": "revoke", "team": "*"},
        {"act": "deactivate"},
        {"act": "grant", "where": "*", "role": "viewer"},
        {"act": "reset"},
    ):
        page = page_text(client.post(of(chief), sent, follow=True))
        assert "no administrator" in page or "yourself" in page or "Your own" in page
    chief = User.objects.get(pk=chief.pk)
    assert chief.is_active
    assert can(chief, "manage_accounts")


def test_whoever_gives_their_own_role_away_is_not_left_on_a_refusal(chief):
    an_admin("other")
    client = as_(chief)
    answer = client.post(of(chief), {"act": "revoke", "team": "*"})
    assert answer["Location"] == "/settings/"
    assert client.get("/settings/").status_code == 200


def test_a_login_ends_and_begins_again(people, chief):
    ada = a_user("ada", team=people.team, role="viewer", password="hers-and-hers-alone")
    hers, client = as_(ada), as_(chief)
    client.post(of(ada), {"act": "deactivate"})
    assert hers.get("/").status_code == 302
    client.post(of(ada), {"act": "reactivate"})
    hers = as_(ada)
    assert hers.get("/").status_code == 200
    page = page_text(client.post(of(ada), {"act": "reset"}))
    password = re.search(r"One-time password</dt><dd><code[^>]*>([^<]+)<", page)[1]
    assert User.objects.get(pk=ada.pk).check_password(password)
    assert hers.get("/")["Location"].startswith("/login/"), "sessions end with the old password"


def test_everybody_has_an_account_page(people, local):
    assert b"<bdi>viewer</bdi> in <a" in people.viewer.get("/settings/account/").content
    page = page_text(as_(local).get("/settings/account/"))
    assert f'<bdi>admin</bdi> in <a href="/settings/teams/{people.team.slug}/">' in page
    for address in ("/zone/", "/password/", "/settings/tokens/"):
        assert f'href="{address}"' in page
    assert b"until an administrator gives you one" in as_(a_user()).get("/settings/account/").content


@pytest.mark.parametrize("count", [1, 12])
def test_the_list_takes_as_many_queries_for_any_number(chief, count, django_assert_num_queries):
    for _ in range(count):
        a_user(team=a_team(), role="viewer")
    client = as_(chief)
    with django_assert_num_queries(9):
        client.get(USERS)
