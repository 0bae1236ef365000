"""Channels: whom kvaudit tells, what became of each message, and a test of it."""

from __future__ import annotations

import uuid

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse

from kvaudit.server import clock
from kvaudit.server.accounts.access import can_somewhere
from kvaudit.server.notify import services
from kvaudit.server.notify.channels import KINDS, BadChannel
from kvaudit.server.notify.models import Channel, Delivery, OutboxMessage
from kvaudit.server.web.kit import untrusted
from kvaudit.server.web.kit.forms import render_form, sent
from kvaudit.server.web.kit.page import SignedIn, page
from kvaudit.server.web.settings.channels import page as table
from kvaudit.server.web.settings.channels.forms import ChannelForm

NOT_YOURS = "Channels are managed by administrators, of a team or of every team."


@page()
def channels(request: SignedIn) -> HttpResponse:
    _manager(request)
    now = clock.now()
    context = {"section": "settings", "now": now, "rows": table.rows_of(request.user, now)}
    return render(request, "settings/channels.html", context)


@page("GET", "POST")
def create(request: SignedIn) -> HttpResponse:
    _manager(request)
    form = ChannelForm(sent(request), user=request.user)
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        try:
            channel, secret = services.create_channel(
                kind=said["kind"],
                name=said["name"],
                address=said["address"],
                team=said["team"],
                secret=said["secret"],
                events=said["events"],
                actor=request.user,
            )
        except BadChannel as problem:
            form.add_error("address", str(problem))
        else:
            return _made(request, channel, "" if said["secret"] else secret)
    return render_form(request, "settings/channel_form.html", {"section": "settings", "form": form})


def _made(request: SignedIn, channel: Channel, drawn: str) -> HttpResponse:
    """A drawn secret is shown in the answer itself: a message would keep it in a cookie, a session in the
    database."""
    if not drawn:
        messages.success(
            request, f"The channel {untrusted.plain(channel.name, 80)} was made. Send a test now."
        )
        return redirect("settings-channel", channel.pk)
    context = {"section": "settings", "channel": channel, "secret": drawn}
    return render(request, "settings/channel_once.html", context)


@page()
def channel(request: SignedIn, pk: int) -> HttpResponse:
    found = _channel_or_404(request, pk)
    now = clock.now()
    listed = table.messages_of(found, now, request.GET.get("before", ""))
    # The panel and the table tell of it by one reading: a worker may send it between two.
    chosen = next((row for row in listed.rows if str(row.message.pk) == request.GET.get("message")), None)
    if chosen is None and (other := _chosen(request, found)):
        chosen = table.message_status(other, now)
    context = {
        "section": "settings",
        "now": now,
        "channel": found,
        "events": table.events_of(found),
        "signature": KINDS[found.kind].signature if found.kind in KINDS else "",
        "page": listed,
        "first": not request.GET.get("before"),
        "told": chosen,
        "waiting": OutboxMessage.objects.filter(channel=found, state=Delivery.PENDING).count(),
    }
    return render(request, "settings/channel.html", context)


@page("POST")
def test(request: SignedIn, pk: int) -> HttpResponse:
    found = _channel_or_404(request, pk)
    return _to_message(services.send_test(channel=found, actor=request.user))


@page("POST")
def switch(request: SignedIn, pk: int) -> HttpResponse:
    found = _channel_or_404(request, pk)
    wanted = request.POST.get("enabled") == "yes"
    if wanted != found.enabled:
        services.switch_channel(channel=found, enabled=wanted, actor=request.user)
        rest = (
            "What waited for it goes out within a minute."
            if wanted
            else "Messages for it wait until it is on again."
        )
        messages.success(request, f"The channel was switched {'on' if wanted else 'off'}. {rest}")
    return redirect("settings-channel", found.pk)


@page("POST")
def remove(request: SignedIn, pk: int) -> HttpResponse:
    found = _channel_or_404(request, pk)
    name = untrusted.plain(found.name, 80)
    services.remove_channel(channel=found, actor=request.user)
    messages.success(request, f"The channel {name} was removed, with its secret and its messages.")
    return redirect("settings-channels")


@page()
def message(request: SignedIn, pk: int, key: uuid.UUID) -> HttpResponse:
    """The part of the channel's page that asks again every second while the outcome is open."""
    found = _channel_or_404(request, pk)
    chosen = get_object_or_404(OutboxMessage.objects.select_related("channel"), channel=found, pk=key)
    now = clock.now()
    context = {"now": now, "channel": found, "told": table.message_status(chosen, now), "with_row": True}
    return render(request, "settings/message.html", context)


@page("POST")
def again(request: SignedIn, pk: int, key: uuid.UUID) -> HttpResponse:
    found = _channel_or_404(request, pk)
    chosen = get_object_or_404(OutboxMessage.objects.select_related("channel__team"), channel=found, pk=key)
    if not services.try_again(message=chosen, actor=request.user):
        messages.warning(request, "It was delivered meanwhile.")
    return _to_message(chosen)


def _manager(request: SignedIn) -> None:
    if not can_somewhere(request.user, "manage_channels"):
        raise PermissionDenied(NOT_YOURS)


def _channel_or_404(request: SignedIn, pk: int) -> Channel:
    managed = Channel.objects.visible_to(request.user).select_related("team")
    return get_object_or_404(managed, pk=pk)


def _chosen(request: SignedIn, channel: Channel) -> OutboxMessage | None:
    """The message that the page was asked to follow."""
    try:
        key = uuid.UUID(request.GET.get("message", ""))
    except ValueError:
        return None
    return OutboxMessage.objects.select_related("channel").filter(channel=channel, pk=key).first()


def _to_message(message: OutboxMessage) -> HttpResponse:
    return redirect(f"{reverse('settings-channel', args=[message.channel_id])}?message={message.pk}")
