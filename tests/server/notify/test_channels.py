from __future__ import annotations

from pathlib import Path

import pytest
from django.core.exceptions import PermissionDenied

from kvaudit.server.ledger.models import Entry
from kvaudit.server.notify.channels import KINDS, BadChannel
from kvaudit.server.notify.delivery import deliver_due
from kvaudit.server.notify.models import Channel, OutboxMessage
from kvaudit.server.notify.services import create_channel, opened, remove_channel, send_test, switch_channel
from tests import factories

ROOT = Path(__file__).parents[3]
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


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_its_tests_and_its_section(kind: str) -> None:
    assert (ROOT / f"tests/server/notify/channels/test_{kind}.py").is_file()
    assert f"\n## {KINDS[kind].label}\n" in (ROOT / "docs/channels.md").read_text("utf-8")
    assert len(kind) <= Channel._meta.get_field("kind").max_length


@pytest.mark.django_db
def test_a_channel_of_a_kind_that_this_release_does_not_know_says_so() -> None:
    """After a step back to an older release."""
    channel, _ = create_channel(kind="webhook", name="x", address=HOOK, actor="system:tests")
    Channel.objects.update(kind="pigeon")
    message = send_test(channel=channel, actor="system:tests")
    assert deliver_due() == 0
    message.refresh_from_db()
    assert "not 'pigeon'" in message.last_problem
