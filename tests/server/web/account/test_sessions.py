"""Sessions: kept as a hash, ended by time, by their owner, by an administrator and by a new password."""

from __future__ import annotations

import json
from datetime import timedelta
from importlib import import_module

import pytest
from django.conf import settings as django_settings
from django.contrib.sessions.backends.base import CreateError, UpdateError
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from kvaudit.server.accounts import services
from kvaudit.server.accounts.models import ApiToken, Session, User
from kvaudit.server.accounts.session_store import SessionStore
from kvaudit.server.accounts.sessions import browser_of
from kvaudit.server.accounts.tokens import authenticate, create_token
from kvaudit.server.ledger.models import Entry
from kvaudit.server.ops.initialise import _administrator
from tests.factories import a_user, an_admin
from tests.server.web.pages import page_text

PASSWORD, NEW = "correct-horse-battery-9", "another-horse-battery-9"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


@pytest.fixture
def ada(db) -> User:
    return a_user("ada", role="viewer", password=PASSWORD)


def logged_in(user: User, agent: str = FIREFOX) -> Client:
    client = Client(headers={"user-agent": agent})
    assert client.post("/login/", {"username": user.username, "password": PASSWORD}).status_code == 302
    return client


def inside(client: Client) -> bool:
    return client.get("/settings/account/").status_code == 200


def test_nobody_logs_in_with_what_the_database_holds(ada):
    client = logged_in(ada)
    key = client.cookies["sessionid"].value
    with connection.cursor() as cursor:
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        for (table,) in cursor.fetchall():
            cursor.execute(f'SELECT count(*) FROM "{table}" t WHERE t::text LIKE %s', [f"%{key}%"])
            assert cursor.fetchone() == (0,), table
    row = Session.objects.get(user=ada)
    for stored in (row.key_hash, row.key_hash[:32], str(row.pk)):
        thief = Client()
        thief.cookies["sessionid"] = stored
        assert not inside(thief)


def test_the_engine_keeps_its_promises(db):
    assert import_module(django_settings.SESSION_ENGINE).SessionStore is SessionStore
    store = SessionStore()
    store["a"] = "b"
    store.save()
    again = SessionStore(store.session_key)
    assert again["a"] == "b"
    assert store.exists(store.session_key)
    with pytest.raises(CreateError):
        SessionStore(store.session_key).save(must_create=True)
    again.cycle_key()
    assert not store.exists(store.session_key)
    with pytest.raises(UpdateError):
        store.save()
    Session.objects.update(expires_at=timezone.now())
    call_command("clearsessions")
    assert not Session.objects.exists()


def test_a_new_secret_key_ends_no_session(ada, settings):
    client = logged_in(ada)
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "quite-another-secret-key-" * 3
    assert inside(client)


def test_sessions_end_when_idle_and_in_the_end(ada, settings):
    client = logged_in(ada)
    row = Session.objects.get(user=ada)
    assert row.expires_at - row.last_used_at == settings.SESSION_IDLE
    Session.objects.update(last_used_at=timezone.now() - timedelta(hours=1))
    assert inside(client)
    used = Session.objects.get(user=ada)
    assert used.expires_at > row.expires_at, "use lets it last on"
    nearly = timezone.now() - settings.SESSION_LONGEST + timedelta(hours=1)
    Session.objects.update(created_at=nearly, last_used_at=timezone.now() - timedelta(hours=1))
    assert inside(client)
    assert Session.objects.get(user=ada).expires_at == nearly + settings.SESSION_LONGEST, "but not for ever"
    Session.objects.update(expires_at=timezone.now())
    assert not inside(client)
    logged_in(ada)
    assert Session.objects.count() == 1, "a login clears what has ended"


def test_what_a_page_asks_by_itself_is_no_use(ada):
    client = logged_in(ada)
    Session.objects.update(last_used_at=timezone.now() - timedelta(hours=1))
    before = Session.objects.get().last_used_at
    client.get("/settings/account/", headers={"hx-request": "true"})
    assert Session.objects.get().last_used_at == before


def test_they_are_listed_and_ended_one_by_one_or_all(ada):
    here, phone, other = (
        logged_in(ada),
        logged_in(ada, "Mozilla/5.0 (iPhone) Safari/605"),
        logged_in(ada, "curl/8"),
    )
    page = page_text(here.get("/settings/account/"))
    for words in ("Firefox on Linux", "Safari on iPhone", "curl", "127.0.0.1", "this one"):
        assert words in page
    on_phone = Session.objects.get(browser="Safari on iPhone")
    here.post("/settings/account/sessions/", {"session": on_phone.pk})
    assert not inside(phone)
    assert inside(other)
    here.post("/settings/account/sessions/")
    assert not inside(other)
    assert inside(here)
    assert Entry.objects.filter(kind="session.ended").count() == 2


@pytest.mark.parametrize("key", ["x", "9" * 30, "-1", "\x00", "0"])
def test_what_is_no_session_of_ones_own_is_a_404(ada, key):
    hers = logged_in(a_user("bob", role="viewer", password=PASSWORD))
    theirs = Session.objects.get(user__username="bob").pk
    client = logged_in(ada)
    for sent in (key, theirs):
        assert client.post("/settings/account/sessions/", {"session": sent}).status_code == 404
    assert inside(hers)


def test_an_administrator_ends_the_sessions_of_others(ada):
    hers, boss = logged_in(ada), Client()
    boss.force_login(an_admin("boss"))
    page = page_text(boss.get(f"/settings/users/{ada.pk}/"))
    assert "Firefox on Linux" in page
    boss.post(f"/settings/users/{ada.pk}/", {"act": "end-sessions"})
    assert not inside(hers)
    stranger = Client()
    stranger.force_login(a_user(role="viewer"))
    assert stranger.post(f"/settings/users/{ada.pk}/", {"act": "end-sessions"}).status_code in (403, 404)


def a_token(user: User) -> str:
    return create_token(owner=user, name="pipeline", scopes=["read"], actor=user)[1]


def test_a_new_password_ends_sessions_and_tokens_and_says_so_first(ada):
    here, other, secret = logged_in(ada), logged_in(ada), a_token(ada)
    foreign = a_token(an_admin("boss"))
    page = page_text(here.get("/password/"))
    assert "1 other session of yours ends" in page
    assert "your 1 API token is revoked" in page
    given = {"new_password1": NEW, "new_password2": NEW}
    for old in ({}, {"old_password": "wrong"}, {"old_password": ""}):
        answer = here.post("/password/", {**given, **old})
        assert answer.status_code == 422
        assert 'href="#id_old_password"' in page_text(answer)
    assert authenticate(secret)
    answer = here.post("/password/", {**given, "old_password": PASSWORD}, follow=True)
    assert "1 session ended, 1 API token revoked" in page_text(answer)
    assert inside(here)
    assert not inside(other)
    assert authenticate(secret) is None
    assert authenticate(foreign)
    assert Entry.objects.filter(
        kind="user.password_changed", subject="user:ada 1 session ended, 1 API token revoked"
    ).exists()


def test_the_old_password_cannot_be_guessed_from_an_open_session(ada):
    client, given = logged_in(ada), {"new_password1": NEW, "new_password2": NEW}
    for _ in range(6):
        client.post("/password/", {**given, "old_password": "guess"})
    answer = client.post("/password/", {**given, "old_password": PASSWORD})
    assert answer.status_code == 422
    assert b"wrong several times" in answer.content


def test_a_one_time_password_is_asked_for_again_when_the_login_is_old(ada):
    User.objects.update(must_change_password=True)
    client = logged_in(ada)
    Session.objects.update(created_at=timezone.now() - timedelta(hours=1))
    given = {"new_password1": NEW, "new_password2": NEW}
    assert client.post("/password/", given).status_code == 422
    assert client.post("/password/", {**given, "old_password": PASSWORD}).status_code == 302


def test_a_reset_ends_everything_of_theirs(ada):
    hers, secret, boss = logged_in(ada), a_token(ada), Client()
    boss.force_login(an_admin("boss"))
    assert "revokes their API tokens: 1 usable" in page_text(boss.get(f"/settings/users/{ada.pk}/"))
    said = page_text(boss.post(f"/settings/users/{ada.pk}/", {"act": "reset"}))
    assert "1 session ended, 1 API token revoked" in said
    assert not inside(hers)
    assert authenticate(secret) is None
    assert ApiToken.objects.get(owner=ada).revoked_at
    assert inside(boss)


def test_deactivated_means_logged_out(ada):
    hers = logged_in(ada)
    services.deactivate_user(user=ada, actor="system:tests")
    assert not Session.objects.filter(user=ada).exists()
    services.reactivate_user(user=ada, actor="system:tests")
    assert not inside(hers)


def test_initialise_with_a_new_password_does_the_same(db):
    boss = an_admin("admin")
    boss.set_password(PASSWORD)
    boss.save()
    hers, secret, said = logged_in(boss), a_token(boss), []
    _administrator(PASSWORD, True, said.append)
    assert inside(hers), "the same password is no change"
    _administrator(NEW, True, said.append)
    assert not inside(hers)
    assert authenticate(secret) is None
    assert said[0].startswith("setting the password of admin: their sessions end")
    assert said[1] == "password of admin set: 1 session ended, 1 API token revoked"


@pytest.mark.parametrize(
    ("agent", "words"),
    [(FIREFOX, "Firefox on Linux"), ("Mozilla/5.0 (Windows NT 10.0) Chrome/140 Safari/537 Edg/140", "Edge on Windows"),
     ("", "unknown"), ("python-requests/2", "another program"), ("<script>" * 1_000, "another program")],
)  # fmt: skip
def test_a_browser_has_a_name_that_its_owner_knows(agent, words):
    assert browser_of(agent) == words


TYPED = "An hour of careful words.\nWith <b>markup</b> & 'quotes'."


def test_what_was_typed_when_the_session_ended_is_sent_after_the_login(people, pair):
    from tests.server.incidents.builders import an_incident

    incident = an_incident(pair)
    user = people.operating_user
    user.set_password(PASSWORD)
    user.save()
    client = Client(enforce_csrf_checks=True)
    client.get("/login/")
    token = client.cookies["csrftoken"].value
    sent = {"act": "cause", "cause-text": TYPED, "csrfmiddlewaretoken": token}
    answer = client.post(f"/incidents/{incident.pk}/act/", sent)
    page = answer.content.decode()
    assert answer.status_code == 403
    assert "An hour of careful words." in page
    assert "<b>markup" not in page
    kept = json.loads(_value(page, "kept"))
    assert kept[0] == f"/incidents/{incident.pk}/act/"
    given = {
        "username": user.username,
        "password": PASSWORD,
        "kept": json.dumps(kept),
        "csrfmiddlewaretoken": _value(page, "csrfmiddlewaretoken"),
    }
    page = client.post("/login/", given).content.decode()
    assert "Nothing has been saved yet" in page
    assert _value(page, "cause-text").replace("\r\n", "\n") == TYPED
    again = {name: _value(page, name) for name in ("act", "cause-text", "csrfmiddlewaretoken")}
    assert client.post(f"/incidents/{incident.pk}/act/", again).status_code == 302
    assert incident.causes.get().text.startswith("An hour")


def test_a_form_that_expired_shows_what_was_typed(people, pair):
    client = Client(enforce_csrf_checks=True)
    client.force_login(people.operating_user)
    given = {"name": TYPED, "csrfmiddlewaretoken": "x" * 64}
    for headers in ({"Origin": "http://testserver"}, {"Sec-Fetch-Site": "same-origin"}):
        answer = client.post("/plans/new/", given, headers=headers)
        assert answer.status_code == 403
        assert "An hour of careful words." in page_text(answer)
        assert "Send it again" in page_text(answer)
    for headers in ({}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
                    {"Sec-Fetch-Site": "same-site", "Origin": "http://testserver"}):  # fmt: skip
        answer = client.post("/plans/new/", given, headers=headers)
        assert answer.status_code == 403
        assert "An hour" not in page_text(answer), "another site's form is not offered for sending"


@pytest.mark.parametrize(
    "kept", ["", "x", "[]", '["https://evil.example/", [["a", "b c"]], false]', '["//evil.example/", [["a", "b"]], false]',
             '["javascript:alert(1)", [["a", "b"]], false]', '["/nowhere/", [["a", "b"]], false]', '["/", 5, false]',
             '["/", [["a"]], false]', "[" * 50_000],
)  # fmt: skip
def test_what_comes_along_leads_nowhere_else(ada, kept):
    answer = Client().post("/login/", {"username": "ada", "password": PASSWORD, "kept": kept})
    assert answer.status_code == 302
    assert answer["Location"] == "/"


def test_secrets_and_files_are_not_kept(db):
    client = Client()
    for path, field in (
        ("/d/x/keys/", "key"),
        ("/settings/channels/new/", "secret"),
        ("/password/", "old_password"),
    ):
        page = page_text(client.post(path, {field: "hunter2 hunter2", "name": "some words"}))
        assert "hunter2" not in page
        assert "some words" in page


def _value(page: str, name: str) -> str:
    import html
    import re

    return html.unescape(re.search(rf'name="{name}" value="([^"]*)"', page)[1])
