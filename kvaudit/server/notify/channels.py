"""Making and changing channels. Addresses and secrets are sealed; a secret is shown once."""

from __future__ import annotations

import secrets as random
from collections.abc import Sequence
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction

from kvaudit.auditor.transport import TransportError, egress, origin_of, parse_base_url
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.accounts.models import Team
from kvaudit.server.accounts.sealed_fields import place_of
from kvaudit.server.accounts.sealing import seal, unseal
from kvaudit.server.ledger.services import record
from kvaudit.server.notify.models import Channel, ChannelKind, Event, every_event

_CHOOSABLE = tuple(each.value for each in Event if each is not Event.TEST)


class BadChannel(ValueError):
    """An address or event that cannot be used; the text is a sentence."""


@transaction.atomic
def create_channel(
    *,
    kind: str,
    name: str,
    address: str,
    actor: Actor,
    team: Team | None = None,
    secret: str = "",
    events: Sequence[str] = (),
) -> tuple[Channel, str]:
    """(channel, secret). A webhook's messages are signed with the secret, which is drawn when none
    is given and cannot be read again; an e-mail channel has none. Raises `BadChannel`."""
    require(actor, "manage_channels", team)
    if kind not in ChannelKind.values:
        raise BadChannel(f"A channel is a webhook or an e-mail address, not {kind!r}.")
    shown = address_shown(kind, address)
    chosen = list(events) or every_event()
    if unknown := [event for event in chosen if event not in _CHOOSABLE]:
        raise BadChannel(f"{', '.join(unknown)} is no event; choose from {', '.join(_CHOOSABLE)}.")
    signing = (secret or random.token_urlsafe(32)) if kind == ChannelKind.WEBHOOK else ""
    channel = Channel.objects.create(
        kind=kind, name=name[:100], team=team, address_shown=shown, events=chosen
    )
    origins = origins_of(kind, address)
    channel.address_sealed = seal(address.strip(), place_of(channel, "address_sealed"), origins)
    channel.secret_sealed = seal(signing, place_of(channel, "secret_sealed"), origins)
    channel.save(update_fields=["address_sealed", "secret_sealed"])
    record(actor=actor, kind="channel.created", subject=f"channel:{channel.pk}")
    return channel, signing


@transaction.atomic
def switch_channel(*, channel: Channel, enabled: bool, actor: Actor) -> None:
    """On or off; messages already waiting for a channel that is off are kept until it is on."""
    require(actor, "manage_channels", channel.team)
    channel.enabled = enabled
    channel.save(update_fields=["enabled"])
    kind = "channel.enabled" if enabled else "channel.disabled"
    record(actor=actor, kind=kind, subject=f"channel:{channel.pk}")


@transaction.atomic
def remove_channel(*, channel: Channel, actor: Actor) -> None:
    """The channel, its secret and its messages are deleted; the ledger keeps that it was."""
    require(actor, "manage_channels", channel.team)
    record(actor=actor, kind="channel.removed", subject=f"channel:{channel.pk}")
    channel.delete()


def address_shown(kind: str, address: str) -> str:
    """What may be shown of an address: scheme and host of a URL, an e-mail address as it is.
    Raises `BadChannel` when it cannot be used."""
    text = address.strip()
    if kind == ChannelKind.EMAIL:
        try:
            validate_email(text)
        except ValidationError:
            raise BadChannel(f"{text[:100]!r} is no e-mail address.") from None
        return text
    origin, _ = split_url(text)
    try:
        base = parse_base_url(origin)
    except TransportError as problem:
        raise BadChannel(f"The webhook's address cannot be used. {problem}") from None
    if why := egress.current().refusal_now(base.host, base.port):
        raise BadChannel(f"The webhook's address cannot be used. {base.host}:{base.port} is {why}.")
    parts = urlsplit(text)
    return f"{origin}/..." if parts.path.strip("/") or parts.query else origin


def origins_of(kind: str, address: str) -> frozenset[str]:
    """Where a channel's messages go: a webhook's origin, none for an e-mail address."""
    return frozenset({origin_of(address)}) if kind == ChannelKind.WEBHOOK else frozenset()


def opened(channel: Channel) -> tuple[str, str]:
    """(address, secret) of a channel, for a message that is about to be sent. Raises `SealBroken` for what
    was sealed for another channel, or a secret that was made for another address."""
    address = unseal(channel.address_sealed, place_of(channel, "address_sealed"), sent_to=())
    origins = origins_of(channel.kind, address)
    return address, unseal(channel.secret_sealed, place_of(channel, "secret_sealed"), sent_to=origins)


def split_url(url: str) -> tuple[str, str]:
    """(origin, path with query) of a webhook's URL. Raises `BadChannel`."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BadChannel("The webhook's address is no URL; write it like https://host/path.") from None
    if parts.scheme not in ("http", "https") or not parts.netloc or len(url) > 2_000:
        raise BadChannel("The webhook's address is no URL; write it like https://host/path.")
    if parts.fragment or not url.isascii() or any(ord(char) <= 32 for char in url):
        raise BadChannel("The webhook's address must be plain ASCII without spaces and without '#'.")
    return f"{parts.scheme}://{parts.netloc}", (parts.path or "/") + (
        f"?{parts.query}" if parts.query else ""
    )
