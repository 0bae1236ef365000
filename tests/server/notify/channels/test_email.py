"""What a letter says, and which addresses are refused."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail
from django.core.mail import EmailMessage

from kvaudit.server.notify.channels import BadChannel
from kvaudit.server.notify.channels.email import KIND
from kvaudit.server.notify.tasks import deliver
from tests.server.notify.receiver import a_message


@pytest.mark.parametrize("address", ["nobody", "a@example.org\nBcc: b@example.org", ""])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(BadChannel, match="no e-mail address"):
        KIND.shown(address)


@pytest.mark.django_db
def test_an_e_mail_reads_like_a_letter() -> None:
    a_message("oncall@example.org", "email")
    assert deliver() == 1
    [letter] = mail.outbox
    assert (letter.to, letter.subject) == (["oncall@example.org"], "[kvaudit] pool of glm-prod failed")
    assert letter.body == (
        "pool of glm-prod failed\n\nThe pool holds 681,280 tokens.\n\nRaise it.\n\nrun: 7\n"
    )


@pytest.mark.django_db
def test_a_mail_server_that_is_away_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any, **__: Any) -> int:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(EmailMessage, "send", away)
    message = a_message("oncall@example.org", "email")
    assert deliver() == 0
    message.refresh_from_db()
    assert message.state == "pending"
    assert "did not take the message" in message.last_problem
