"""Channels: made, tested, switched and removed by who manages them; addresses and secrets stay unseen."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta

import pytest
from django.core import mail
from django.test import Client
from django.utils import timezone

from kvaudit.server.ledger.models import Entry
from kvaudit.server.notify import delivery, services
from kvaudit.server.notify.models import Channel, OutboxMessage
from kvaudit.server.notify.services import create_channel, opened
from tests.factories import a_user, an_admin
from tests.server.web.pages import page_text

pytestmark = pytest.mark.django_db

LIST, NEW = "/settings/channels/", "/settings/channels/new/"
HOOK = "https://hooks.example.org/services/secret-path?k=v"
GOOD = {
    "name": "On call",
    "kind": "webhook",
    "address": HOOK,
    "team": "",
    "events": ["fail", "error"],
    "secret": "",
}


@pytest.fixture
def admin() -> Client:
    return as_(an_admin())


@pytest.fixture
def team_admin(people) -> Client:
    return as_(a_user(team=people.team, role="admin"))


def as_(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


def a_channel(**fields) -> Channel:
    given = {"kind": "email", "name": "on call", "address": "oncall@example.org", "actor": "system:tests"}
    return create_channel(**{**given, **fields})[0]


def a_message(channel: Channel, **fields) -> OutboxMessage:
    message = services.send_test(channel=channel, actor="system:tests")
    OutboxMessage.objects.filter(pk=message.pk).update(**fields)
    message.refresh_from_db()
    return message


def read(client: Client, path: str = LIST) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return page_text(answer)


def one(channel: Channel, more: str = "") -> str:
    return f"{LIST}{channel.pk}/{more}"


def test_a_drawn_secret_is_shown_once_and_the_address_never(admin):
    answer = admin.post(NEW, GOOD)
    channel = Channel.objects.get()
    secret = opened(channel)[1]
    page = page_text(answer)
    assert secret in page
    assert "no-store" in answer["Cache-Control"]
    assert (channel.team, channel.events, opened(channel)[0]) == (None, ["fail", "error"], HOOK)
    assert "secret-path" not in page
    for shown in (read(admin), read(admin, one(channel))):
        assert "secret-path" not in shown
        assert "https://hooks.example.org/..." in shown
    assert secret not in read(admin, one(channel)) + read(admin)
    assert secret not in str(admin.session.items()) + str(admin.cookies)


def test_a_secret_of_one_s_own_is_not_shown_at_all(admin):
    answer = admin.post(NEW, {**GOOD, "secret": "correct horse battery"}, follow=True)
    channel = Channel.objects.get()
    assert answer.redirect_chain == [(one(channel), 302)]
    assert "correct horse" not in page_text(answer)
    assert opened(channel)[1] == "correct horse battery"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": ""}, "This field is required"),
        ({"name": "x" * 10_000}, "at most 100 characters"),
        ({"name": "a\x00"}, "Null characters are not allowed"),
        ({"kind": "pigeon"}, "not one of the available choices"),
        ({"address": "http://169.254.169.254/x"}, "cannot be used"),
        ({"address": "https://user:pass@host/x"}, "password"),
        ({"address": "nowhere"}, "is no URL"),
        ({"address": "https://h/" + "x" * 3_000}, "at most 2000 characters"),
        ({"kind": "email"}, "is no e-mail address"),
        ({"kind": "email", "address": "a@example.org", "secret": "x" * 20}, "E-mail is not signed"),
        ({"secret": "short"}, "at least 16 characters"),
        ({"events": []}, "This field is required"),
        ({"events": ["test"]}, "not one of the available choices"),
        ({"team": "no-such"}, "not one of the available choices"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_made(admin, change, sentence):
    answer = admin.post(NEW, {**GOOD, **change})
    assert answer.status_code == 422
    assert sentence in page_text(answer)
    assert not Channel.objects.exists()


def test_an_administrator_of_a_team_makes_channels_for_it_alone(people, team_admin):
    assert "every team" not in read(team_admin, NEW)
    assert "This field is required" in page_text(team_admin.post(NEW, GOOD))
    team_admin.post(NEW, {**GOOD, "team": people.team.slug})
    channel = Channel.objects.get()
    assert channel.team == people.team
    everybodys = a_channel(name="everybody")
    page = read(team_admin)
    assert "On call" in page
    assert "everybody" not in page
    assert team_admin.get(one(everybodys)).status_code == 404


@pytest.mark.parametrize(
    "more", ["", "test/", "switch/", "remove/", "messages/{key}/", "messages/{key}/again/"]
)
def test_nobody_else_finds_or_touches_a_channel(people, more):
    channel = a_channel(team=people.team, name="sesame")
    message = a_message(channel, last_problem="refused")
    path = one(channel, more.format(key=message.pk))
    for client in (people.operator, people.viewer, people.stranger):
        for method in ("get", "post"):
            answer = getattr(client, method)(path, {"enabled": "no"})
            assert answer.status_code in (404, 405)
            assert b"sesame" not in answer.content
    assert people.operator.get(LIST).status_code == people.viewer.post(NEW, GOOD).status_code == 403
    channel.refresh_from_db()
    assert channel.enabled
    assert OutboxMessage.objects.get().next_attempt_at == message.next_attempt_at


def test_a_message_of_another_channel_is_not_found_under_this_one(admin):
    message = a_message(a_channel())
    other = a_channel(name="other")
    assert admin.get(one(other, f"messages/{message.pk}/")).status_code == 404
    assert admin.post(one(other, f"messages/{message.pk}/again/")).status_code == 404
    assert 'id="message"' not in read(admin, one(other, f"?message={message.pk}"))


def test_the_panel_and_the_table_tell_the_same_of_a_message(admin):
    channel = a_channel()
    message = a_message(channel, attempts=1)
    page = read(admin, one(channel, f"?message={message.pk}"))
    assert page.count("on its way") == 2
    OutboxMessage.objects.update(last_problem="Refused by the server.")
    part = read(admin, one(channel, f"messages/{message.pk}/"))
    assert f'<template><tr id="row-{message.pk}" hx-swap-oob="true">' in part
    assert part.count("not yet") == 2
    assert part.count("Refused by the server.") == 2


def test_there_is_one_way_to_the_first_channel_and_to_the_next(admin):
    for _ in range(2):
        assert read(admin).count(f'href="{NEW}"') == 1
        a_channel()


def test_a_test_is_followed_from_waiting_to_delivered(admin):
    channel = a_channel()
    answer = admin.post(one(channel, "test/"), follow=True)
    page = page_text(answer)
    assert "Waits for a worker." in page
    part = re.search(r'hx-get="([^"]+)" hx-trigger="every 1s"', page)
    assert part is not None
    assert "Reload" in page
    delivery.deliver_due()
    assert len(mail.outbox) == 1
    shown = read(admin, part[1])
    assert re.search(r"Delivered (now|\d+ s ago)\.", shown)
    assert "verdict-pass" in shown
    assert "hx-trigger" not in shown
    assert "<!doctype" not in shown


def test_a_failed_test_says_why_and_goes_on(admin, settings):
    channel = a_channel()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9
    path = admin.post(one(channel, "test/"))["Location"]
    delivery.deliver_due()
    page = read(admin, path)
    assert "Not delivered by 1 attempt of 12. The mail server 127.0.0.1 did not take the message" in page
    assert re.search(r"Next try in \d+ s\.", page)
    assert 'hx-trigger="every 5s"' in page
    assert "Try again" in page
    assert "last message" in read(admin, "/settings/")


def test_a_channel_that_is_off_keeps_what_waits(admin):
    channel = a_channel()
    admin.post(one(channel, "switch/"), {"enabled": "no"})
    page = page_text(admin.post(one(channel, "test/"), follow=True))
    assert "The channel is off: it waits until the channel is switched on." in page
    assert "1 message waits for it." in page
    assert "hx-trigger" not in page
    delivery.deliver_due()
    assert not mail.outbox
    admin.post(one(channel, "switch/"), {"enabled": "yes"})
    delivery.deliver_due()
    assert len(mail.outbox) == 1
    kinds = Entry.objects.filter(kind__startswith="channel.").values_list("kind", flat=True)
    assert list(kinds) == ["channel.created", "channel.disabled", "channel.tested", "channel.enabled"]


def test_what_was_given_up_is_tried_once_more(admin, settings):
    channel = a_channel()
    message = a_message(channel, state="failed", attempts=12, last_problem="The receiver answered 500.")
    page = read(admin, one(channel))
    assert "given up" in page
    assert "The receiver answered 500." in page
    admin.post(one(channel, f"messages/{message.pk}/again/"))
    delivery.deliver_due()
    message.refresh_from_db()
    assert (message.state, message.attempts) == ("sent", 13)
    page = page_text(admin.post(one(channel, f"messages/{message.pk}/again/"), follow=True))
    assert "It was delivered meanwhile." in page
    assert OutboxMessage.objects.get().state == "sent"
    assert Entry.objects.filter(kind="message.tried_again").count() == 1


def test_a_message_that_nobody_takes_is_said(admin):
    channel = a_channel()
    old = timezone.now() - timedelta(minutes=5)
    message = a_message(channel, created_at=old, next_attempt_at=old)
    assert "see that workers run" in read(admin, one(channel, f"?message={message.pk}"))


def test_a_removed_channel_is_gone_with_its_messages(admin):
    channel = a_channel(name="<b>gone</b>")
    a_message(channel)
    page = page_text(admin.post(one(channel, "remove/"), follow=True))
    assert "was removed" in page
    assert "<b>gone" not in page
    assert not OutboxMessage.objects.exists()
    assert admin.get(one(channel)).status_code == 404
    assert "Alerts are off: no channel configured." in page


def test_hostile_names_and_problems_are_only_shown(admin):
    evil = "<script>alert(1)</script>\u202e=1+1"
    channel = a_channel(name=evil)
    message = a_message(channel, last_problem=evil, attempts=1, subject=evil)
    for path in (LIST, one(channel), one(channel, f"?message={message.pk}")):
        page = read(admin, path)
        assert "<script>alert" not in page
        assert "\u202e" not in page


@pytest.mark.parametrize("query", ["message=zzz", "message=%00", "before=zzz", "before=~", "before=2026-01-01T00:00:00~x",
                                   "before=0001-01-01T00:00:00%2B23:59~00000000-0000-0000-0000-000000000000",
                                   "before=" + "9" * 5_000, "before=%E2%80%AE"])  # fmt: skip
def test_odd_questions_never_break_it(admin, query):
    channel = a_channel()
    a_message(channel)
    read(admin, one(channel, f"?{query}"))
    assert admin.get(f"{LIST}{2**70}/").status_code == 404


def test_pages_of_messages_hold_each_once(admin, monkeypatch):
    monkeypatch.setattr("kvaudit.server.web.settings.channels.page.PAGE_SIZE", 3)
    channel, at = a_channel(), timezone.now() - timedelta(hours=1)
    for number in range(8):  # six of one instant
        a_message(channel, subject=f"no. {number}.", created_at=at + timedelta(seconds=max(number - 5, 0)))
    seen, path = [], one(channel)
    while path:
        page = read(admin, path)
        seen += re.findall(r"no\. \d\.(?=</bdi><div)", page)
        onward = re.search(r'rel="next" href="(\?[^"]+)"', page)
        path = one(channel, onward[1].replace("&amp;", "&")) if onward else ""
    assert sorted(seen) == [f"no. {number}." for number in range(8)]
    assert seen[:2] == ["no. 7.", "no. 6."]


def test_both_pages_take_as_many_queries_for_any_number(admin, django_assert_num_queries):
    channel = a_channel()
    for _ in range(2):
        a_message(channel)
        a_message(a_channel(name=str(uuid.uuid4())))
        with django_assert_num_queries(6):
            read(admin)
        with django_assert_num_queries(7):
            read(admin, one(channel))
