from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied

from kvaudit.server.ledger.models import Entry
from kvaudit.server.notify.channels import (
    BadChannel,
    address_shown,
    create_channel,
    opened,
    remove_channel,
    switch_channel,
)
from kvaudit.server.notify.models import Channel, OutboxMessage
from tests import factories

HOOK = "https://hooks.example.org/services/T0/secret-path?x=1"


@pytest.mark.django_db
def test_address_and_secret_are_sealed_and_the_secret_is_given_once() -> None:
    channel, secret = create_channel(kind="webhook", name="chat", address=HOOK, actor="system:tests")
    assert len(secret) >= 32
    stored = repr(Channel.objects.values().get()) + repr(channel)
    assert "secret-path" not in stored
    assert secret not in stored
    assert channel.address_shown == "https://hooks.example.org/..."
    assert opened(channel) == (HOOK, secret)
    assert Entry.objects.get().kind == "channel.created"


@pytest.mark.parametrize(
    ("kind", "address", "sentence"),
    [
        ("webhook", "", "no URL"),
        ("webhook", "ftp://x/y", "no URL"),
        ("webhook", "https://", "no URL"),
        ("webhook", "https://[::1/x", "no URL"),
        ("webhook", "https://user:pass@host/x", "password"),
        ("webhook", "http://169.254.169.254/latest/meta-data", "169.254"),
        ("webhook", "https://host/a b", "ASCII"),
        ("webhook", "https://host/x\r\nHost: y", "ASCII"),
        ("webhook", "https://host/x#y", "#"),
        ("email", "nobody", "no e-mail address"),
        ("email", "a@example.org\nBcc: b@example.org", "no e-mail address"),
        ("email", "", "no e-mail address"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(kind: str, address: str, sentence: str) -> None:
    with pytest.raises(BadChannel, match=sentence):
        address_shown(kind, address)


@pytest.mark.django_db
@pytest.mark.parametrize(("kind", "events"), [("pigeon", ()), ("email", ("fail", "test"))])
def test_an_unknown_kind_or_event_is_refused(kind: str, events: tuple[str, ...]) -> None:
    with pytest.raises(BadChannel):
        create_channel(kind=kind, name="x", address="a@example.org", events=events, actor="system:tests")


@pytest.mark.django_db
def test_owner_member_and_stranger() -> None:
    team = factories.a_team()
    admin, member, stranger = (
        factories.a_user(team=team, role="admin"),
        factories.a_user(team=team, role="operator"),
        factories.a_user(),
    )
    channel, _ = create_channel(kind="webhook", name="x", address=HOOK, team=team, actor=admin)
    for user in (member, stranger):
        with pytest.raises(PermissionDenied):
            create_channel(kind="webhook", name="x", address=HOOK, team=team, actor=user)
        with pytest.raises(PermissionDenied):
            switch_channel(channel=channel, enabled=False, actor=user)
        with pytest.raises(PermissionDenied):
            remove_channel(channel=channel, actor=user)
        assert not Channel.objects.visible_to(user).exists()
        assert not OutboxMessage.objects.visible_to(user).exists()
    assert list(Channel.objects.visible_to(admin)) == [channel]
    with pytest.raises(PermissionDenied):  # a team's admin makes no channel for everybody
        create_channel(kind="webhook", name="x", address=HOOK, actor=admin)
    switch_channel(channel=channel, enabled=False, actor=admin)
    remove_channel(channel=channel, actor=admin)
    assert [entry.kind for entry in Entry.objects.filter(kind__startswith="channel")] == [
        "channel.created",
        "channel.disabled",
        "channel.removed",
    ]
