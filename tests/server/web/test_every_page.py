"""What holds for every address: login, the security policy, no cache, no failure on odd input."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse

from tests.factories import a_user
from tests.server.web.addresses import PATTERNS

OPEN = ("login", "logout")
CLOSED = [pattern for pattern in PATTERNS if pattern.name not in OPEN]
KWARGS = {"slug": "chat-large", "pk": 1, "sha256": "0" * 64, "series": UUID(int=7), "key": UUID(int=7)}


def address(pattern) -> str:
    wanted = pattern.pattern.converters
    return reverse(pattern.name, kwargs={name: KWARGS.get(name, "anything") for name in wanted})


def answers(client: Client, path: str) -> dict[str, str]:
    """Method -> where it leads to, of those that are allowed there."""
    given = {method: getattr(client, method)(path) for method in ("get", "post")}
    return {
        method: answer.get("Location", f"no redirect but {answer.status_code}")
        for method, answer in given.items()
        if answer.status_code != 405
    }


@pytest.mark.django_db
def test_nothing_is_seen_without_a_login():
    for pattern in CLOSED:
        led = answers(Client(), address(pattern))
        assert led, pattern.name
        assert all(where.startswith("/login/?next=") for where in led.values()), (pattern.name, led)


@pytest.mark.django_db
def test_open_to_everybody_are_the_login_and_the_logout_alone():
    assert {pattern.name for pattern in PATTERNS if pattern not in CLOSED} == set(OPEN)
    assert Client().get("/login/").status_code == 200
    assert Client().post("/login/", {"username": "nobody", "password": "x"}).status_code == 422
    assert answers(Client(), "/logout/") == {"post": "/login/"}


@pytest.fixture
def newcomer(db: None) -> Client:
    """Somebody with a one-time password."""
    user = a_user(role="admin")
    type(user).objects.filter(pk=user.pk).update(must_change_password=True)
    client = Client()
    client.force_login(user)
    return client


def test_a_one_time_password_is_changed_first(newcomer):
    led = {
        pattern.name: set(answers(newcomer, address(pattern)).values())
        for pattern in CLOSED
        if pattern.name != "password-change"
    }
    assert len(led) > 50, "the addresses are found"
    assert {name: where for name, where in led.items() if where != {"/password/"}} == {}


def test_whoever_has_a_one_time_password_may_change_it_or_leave(newcomer):
    assert newcomer.get("/password/").status_code == 200
    assert answers(newcomer, "/logout/") == {"post": "/login/"}


@pytest.mark.parametrize("path", ["/", "/plans/", "/help/", "/settings/"])
def test_pages_are_not_cached(people, path):
    answer = people.operator.get(path)
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/", "/login/", "/plans/", "/nowhere/", "/help/"])
def test_the_policy_is_strict(people, path):
    answer = people.operator.get(path)
    policy = answer["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


@pytest.mark.parametrize(
    "query",
    ["q=%00", "q=" + "x" * 5_000, "sort=nonsense&after=~&before=", "verdict=green", "item=9", "after=%F0%9F%98%80",
     "team=%27%3B--", "engine=%E2%80%AE", "q=%", "before=zzz", "after=zzz"],
)  # fmt: skip
def test_odd_filters_never_break_the_fleet(people, pair, query):
    assert people.viewer.get(f"/?{query}").status_code == 200


@pytest.mark.parametrize(
    "path", ["/runs/99999999999999999999/", "/runs/0/", "/d/nobody/", f"/plans/{UUID(int=7)}/"]
)
def test_what_is_not_there_is_a_404_with_a_way_back(people, path):
    answer = people.operator.get(path)
    assert answer.status_code == 404
    assert b"To the fleet" in answer.content


def test_a_form_without_its_token_is_refused_in_words(people, pair):
    client = Client(enforce_csrf_checks=True)
    client.force_login(people.operating_user)
    answer = client.post("/d/chat-large/audit/")
    assert answer.status_code == 403
    assert b"form had expired" in answer.content


def test_a_page_that_breaks_says_so_without_a_traceback(people, monkeypatch):
    def broken(user):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("kvaudit.server.web.fleet.page.all_rows", broken)
    people.operator.raise_request_exception = False
    answer = people.operator.get("/")
    assert answer.status_code == 500
    assert b"that is our fault" in answer.content
    assert b"secret detail" not in answer.content
