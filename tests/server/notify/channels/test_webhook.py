"""What arrives at a receiver of webhooks, and which addresses are refused."""

from __future__ import annotations

import json
import time

import pytest

from kvaudit.server.notify.channels import BadChannel
from kvaudit.server.notify.channels.webhook import KIND
from kvaudit.server.notify.models import Channel
from kvaudit.server.notify.services import opened
from kvaudit.server.notify.signing import HEADER, holds
from kvaudit.server.notify.tasks import deliver
from tests.server.notify.receiver import Receiver, a_message


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("", "no URL"),
        ("ftp://x/y", "no URL"),
        ("https://", "no URL"),
        ("https://[::1/x", "no URL"),
        ("https://user:pass@host/x", "password"),
        ("http://169.254.169.254/latest/meta-data", "169.254"),
        ("https://host/a b", "ASCII"),
        ("https://host/x\r\nHost: y", "ASCII"),
        ("https://host/x#y", "#"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(address: str, sentence: str) -> None:
    with pytest.raises(BadChannel, match=sentence):
        KIND.shown(address)


@pytest.mark.django_db
def test_a_webhook_is_signed_and_sent_once(receiver: Receiver) -> None:
    message = a_message(receiver.url)
    assert deliver() == 1
    assert deliver() == 0

    [(path, headers, body)] = receiver.got
    assert path == "/hook/path-secret?k=v"
    secret = opened(Channel.objects.get())[1]
    assert holds(headers[HEADER], body, secret, int(time.time()))
    assert headers["X-KVAudit-Delivery"] == str(message.pk)
    assert json.loads(body)["payload"] == {
        "summary": "The pool holds 681,280 tokens.",
        "next": "Raise it.",
        "run": 7,
    }
    assert secret.encode() not in body
    message.refresh_from_db()
    assert (message.state, message.attempts, message.last_problem) == ("sent", 1, "")
