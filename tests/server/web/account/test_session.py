"""Login, the one-time password, logout, and the viewer's zone."""

from __future__ import annotations

import pytest
from django.test import Client

from kvaudit.server.accounts.models import User
from kvaudit.server.web.account import login_throttle
from tests.factories import a_user
from tests.server.web import builders
from tests.server.web.pages import page_text

PASSWORD = "correct-horse-battery-9"


@pytest.fixture
def ada(db) -> User:
    return a_user("ada", role="viewer", password=PASSWORD)


def test_login_and_logout(ada):
    client = Client()
    answer = client.post("/login/", {"username": "ada", "password": PASSWORD, "next": "/plans/"})
    assert answer["Location"] == "/plans/"
    assert client.get("/").status_code == 200
    assert client.get("/logout/").status_code == 405, "a link cannot log anybody out"
    client.post("/logout/")
    assert client.get("/").status_code == 302


@pytest.mark.parametrize(
    ("name", "password"), [("ada", "wrong"), ("nobody", PASSWORD), ("", ""), ("a\x00", "b")]
)
def test_a_wrong_login_says_the_same_whatever_was_wrong(ada, name, password):
    answer = Client().post("/login/", {"username": name, "password": password})
    assert answer.status_code == 422
    assert b'role="alert"' in answer.content


def test_guessing_is_held_up_by_name_and_address(ada):
    for _ in range(login_throttle.BY_NAME - 1):
        assert Client().post("/login/", {"username": "ada", "password": "guess"}).status_code == 422
    assert Client().post("/login/", {"username": "ada", "password": PASSWORD}).status_code == 302, "not yet"
    for _ in range(login_throttle.BY_NAME):
        Client().post("/login/", {"username": "ADA", "password": "guess"})
    held = Client().post("/login/", {"username": "ada", "password": PASSWORD})
    assert held.status_code == 429, "even the right one: otherwise the answer would tell"
    assert b"Wait and try again" in held.content
    assert held["Retry-After"] == str(login_throttle.PACE)
    elsewhere = Client().post("/login/", {"username": "ada", "password": PASSWORD}, REMOTE_ADDR="10.1.1.1")
    assert elsewhere.status_code == 302, "nobody is locked out from everywhere"


def test_login_leads_nowhere_else(ada):
    answer = Client().post(
        "/login/", {"username": "ada", "password": PASSWORD, "next": "https://evil.example/"}
    )
    assert answer["Location"] == "/"


def test_a_one_time_password_is_replaced(ada):
    User.objects.update(must_change_password=True)
    client = Client()
    client.force_login(ada)
    short = client.post("/password/", {"new_password1": "short", "new_password2": "short"})
    assert b"too short" in short.content
    new = "a-much-better-one-77"
    client.post("/password/", {"new_password1": new, "new_password2": new})
    ada.refresh_from_db()
    assert ada.check_password(new)
    assert not ada.must_change_password
    assert client.get("/").status_code == 200, "still logged in"


def test_the_zone_changes_what_times_read(people, pair):
    run = builders.a_run(pair, {"pool": "pass"})
    assert "UTC" in page_text(people.operator.get(f"/runs/{run.pk}/"))
    people.operator.post("/zone/", {"zone": "Asia/Tokyo"})
    page = page_text(people.operator.get(f"/runs/{run.pk}/"))
    assert " JST</time>" in page
    assert ' UTC"' in page, "UTC stays in the title"
    assert "Times in <bdi>Asia/Tokyo</bdi>" in page


def test_a_zone_that_is_none_is_refused_and_a_lost_one_is_utc(people, pair):
    answer = people.operator.post("/zone/", {"zone": "../../etc/passwd"})
    assert answer.status_code == 422
    User.objects.update(zone="Gone/Zone")
    assert people.operator.get("/d/chat-large/").status_code == 200
