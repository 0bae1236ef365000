"""Guessing is slowed by name, address and account; nobody is locked out for good by what somebody else does."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from kvaudit.server.accounts.ip_addresses import bucket_of
from kvaudit.server.accounts.models import FailedLogins, User
from kvaudit.server.ledger.models import Entry
from kvaudit.server.web.account import login_throttle
from tests.factories import a_user
from tests.server.web.pages import page_text

PASSWORD = "correct-horse-battery-9"


@pytest.fixture
def ada(db) -> User:
    return a_user("ada", role="viewer", password=PASSWORD)


def login(name="ada", password=PASSWORD, address="10.0.0.1", client=None):
    return (
        (client or Client())
        .post("/login/", {"username": name, "password": password}, REMOTE_ADDR=address)
        .status_code
    )


def later(seconds: float) -> None:
    """As if so much time had passed for what is counted."""
    for row in FailedLogins.objects.all():
        row.until -= timedelta(seconds=seconds)
        row.save()


@pytest.mark.parametrize(
    ("address", "bucket"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("::ffff:0a01:0203", "10.1.2.3"),
        ("10.1.2.3:4711", "10.1.2.3"),
        ("[2001:db8:1:2::9]:4711", "2001:db8:1:2::/64"),
        ("", "unknown"),
        ("unix", "unknown"),
        ("1" * 500, "unknown"),
    ],
)
def test_addresses_are_counted_by_who_holds_them(address, bucket):
    assert bucket_of(address) == bucket


def test_a_whole_ipv6_network_counts_as_one(ada):
    for number in range(login_throttle.BY_NAME):
        assert login(password="guess", address=f"2001:db8::{number + 1:x}") == 422
    assert login(address="2001:db8::ffff") == 429
    assert login(address="2001:db8:0:1::1") == 302


def test_an_address_that_guesses_leaves_the_others_behind_it_alone(ada):
    """One office, one address: sixty failures of somebody lock nobody else out, and sixty more do not either."""
    for number in range(login_throttle.BY_ADDRESS):
        assert login(f"name-{number}", "guess") == 422
    assert login() == 302, "the right password at the first attempt"
    for _ in range(login_throttle.BY_NAME_THERE):
        assert login("somebody", "guess") == 422
    assert login("somebody", "guess") == 429, "each name is slowed sooner than elsewhere"


def test_an_account_that_is_attacked_from_everywhere_is_slowed_and_never_shut(ada):
    for number in range(login_throttle.BY_ACCOUNT):
        assert login(password="guess", address=f"10.0.{number}.1") == 422
    assert login(password="guess", address="10.9.9.1") == 422, "its turn"
    assert login(address="10.9.9.2") == 429, "even the right one: otherwise the answer would tell"
    later(login_throttle.ACCOUNT_PACE)
    assert login(address="10.9.9.2") == 302, "the right password, after a wait"


def test_asking_too_early_does_not_put_the_next_turn_off(ada):
    for _ in range(login_throttle.BY_NAME):
        login(password="guess")
    for _ in range(5):
        assert login(password="guess") == 429
        later(login_throttle.PACE / 5)
    assert login() == 302


def test_a_browser_that_is_known_is_not_held_up_by_what_others_do(ada):
    browser = Client()
    assert login(client=browser) == 302
    browser.post("/logout/")
    for number in range(login_throttle.BY_ACCOUNT + 5):
        login(password="guess", address=f"10.0.{number}.1")
    for number in range(login_throttle.BY_ADDRESS + 5):
        login(f"name-{number}", "guess")
    for _ in range(login_throttle.BY_NAME + 2):
        login(password="guess")
    assert login() == 429
    assert login(client=browser) == 302


@pytest.mark.parametrize("cookie", ["", "x", "WyJ4Il0:a:b", "\udcff", "0" * 5_000])
def test_what_is_no_known_browser_counts_as_unknown(ada, cookie):
    browser = Client()
    browser.cookies[login_throttle.COOKIE] = cookie.encode("utf-8", "replace").decode()
    for _ in range(login_throttle.BY_NAME):
        login(password="guess", client=browser)
    assert login(client=browser) == 429


def test_a_known_browser_guesses_no_faster_and_not_for_others(ada):
    a_user("bob", role="viewer", password=PASSWORD)
    browser = Client()
    login("bob", client=browser)
    browser.post("/logout/")
    for _ in range(login_throttle.BY_NAME):
        assert login("bob", "guess", client=browser) == 422
    assert login("bob", client=browser) == 429
    for _ in range(login_throttle.BY_NAME):
        login(password="guess", client=browser)
    assert login(client=browser) == 429, "known as bob, not as ada"


def test_logins_and_failures_are_in_the_record_and_cannot_fill_it(ada):
    browser = Client(headers={"user-agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko Firefox/140.0"})
    login(client=browser)
    browser.post("/logout/")
    for _ in range(login_throttle.BY_NAME):
        login(password="guess", address="10.0.0.9")
    login("my-password-by-mistake", "x")
    said = list(
        Entry.objects.filter(kind__in=("session.began", "session.ended", "login.failed")).values_list(
            "kind", "subject"
        )
    )
    assert said == [
        ("session.began", "user:ada from 10.0.0.1, Firefox on Linux"),
        ("session.ended", "user:ada logged out"),
        ("login.failed", "user:ada once, last from 10.0.0.9"),
        ("login.failed", "user:ada 10 times, last from 10.0.0.9"),
        ("login.failed", "unknown-user:- once, last from 10.0.0.1"),
    ]
    for number in range(150):
        login(f"name-{number}", "x", address=f"10.1.{number}.1")
    assert Entry.objects.filter(kind="login.failed").count() <= 101
    assert "not told one by one" in Entry.objects.filter(kind="login.failed").latest("sequence").subject
    login(client=browser)
    page = page_text(browser.get("/settings/account/"))
    assert "10 times, last from 10.0.0.9" in page


def test_hostile_names_are_no_trouble(ada):
    for name in (
        "\x00",
        "ada\x00",
        "\u202e" * 200,
        "x" * 5_000,
        "' OR 1=1 --",
        "\ud800".encode("utf-8", "replace").decode(),
    ):
        assert login(name, "x") in (422, 429)
    assert timezone.now()
