"""Guessing passwords takes time, and nobody can lock anybody else out for good.

Failed logins are counted three ways, as rows that hold for every web process and survive a restart
(`kvaudit.server.accounts.throttle`):

- a name from an address: after `BY_NAME` failures one attempt in `PACE`;
- an address (an office, or an IPv6 /64): after `BY_ADDRESS` failures each name may fail `BY_NAME_THERE` times from
  there before it is paced. So one guess for many names is expensive, and whoever shares the address still gets in;
- a name from everywhere: after `BY_ACCOUNT` failures one attempt in `ACCOUNT_PACE`, whoever makes it.

Past its number a subject is slowed, never shut: an attempt that comes too early is not tried and does not put off the
next. A browser that has logged in as that user before (`known`) is counted by itself and not held up by what others do.
"""

from __future__ import annotations

import secrets
import unicodedata
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse

from kvaudit.server.accounts import throttle
from kvaudit.server.accounts.models import User
from kvaudit.server.web.kit.peer import bucket

WINDOW = 300
"""Seconds after the last failure until those of an address are forgotten."""
REMEMBERED = 3_600
"""As `WINDOW`, of a name."""
BY_NAME, BY_ADDRESS, BY_NAME_THERE, BY_ACCOUNT = 10, 60, 3, 30
PACE, ACCOUNT_PACE = 30, 10
"""Seconds between two attempts of what is slowed."""

COOKIE = "kvaudit_device"
_SALT = "kvaudit.web.known-device"
_KNOWN_FOR = timedelta(days=180)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Who tries, from where: the subjects that are counted. ``device`` is "" for a browser that is not known."""

    name: str
    address: str
    device: str

    @classmethod
    def of(cls, request: HttpRequest, typed: str) -> Attempt:
        name = unicodedata.normalize("NFKC", typed).casefold()
        return cls(name, bucket(request), _device(request, typed))

    @property
    def by_name(self) -> str:
        return repr(("device", self.device) if self.device else ("name", self.address, self.name))

    @property
    def by_address(self) -> str:
        return repr(("address", self.address))

    @property
    def by_account(self) -> str:
        return repr(("account", self.name))


def wait(attempt: Attempt) -> int:
    """Seconds to wait, 0 when the attempt may be made. What is slowed takes its turn by asking."""
    failed = throttle.failures([attempt.by_name, attempt.by_address, attempt.by_account])
    crowded = failed[attempt.by_address] >= BY_ADDRESS and not attempt.device
    if failed[attempt.by_name] >= (BY_NAME_THERE if crowded else BY_NAME) and not throttle.turn(
        attempt.by_name, timedelta(seconds=PACE)
    ):
        return PACE
    if (
        not attempt.device
        and failed[attempt.by_account] >= BY_ACCOUNT
        and not throttle.turn(attempt.by_account, timedelta(seconds=ACCOUNT_PACE))
    ):
        return ACCOUNT_PACE
    return 0


def note_failure(attempt: Attempt) -> int:
    """How many failures of this name that makes."""
    made = throttle.count(attempt.by_name, timedelta(seconds=REMEMBERED))
    throttle.count(attempt.by_address, timedelta(seconds=WINDOW))
    if not attempt.device:
        throttle.count(attempt.by_account, timedelta(seconds=REMEMBERED))
    if made >= BY_NAME_THERE:
        # The attempt that failed was a turn, too: the one after it does not come at once.
        throttle.turn(attempt.by_name, timedelta(seconds=PACE))
    return made


def note_success(attempt: Attempt) -> None:
    """Whoever knows the password starts anew; address and account keep their counts."""
    throttle.forget(attempt.by_name)


def remember(response: HttpResponse, user: User) -> None:
    """The browser is known from now on: a signed cookie, which by itself opens nothing."""
    response.set_cookie(
        COOKIE,
        signing.dumps([user.pk, secrets.token_hex(8)], salt=_SALT),
        max_age=_KNOWN_FOR,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
        path="/login/",
    )


def _device(request: HttpRequest, name: str) -> str:
    """The id of a browser that has logged in under that name before."""
    sent = request.COOKIES.get(COOKIE, "")
    if not sent or "\x00" in name:
        return ""
    try:
        pk, device = signing.loads(sent, salt=_SALT, max_age=_KNOWN_FOR)
    except (signing.BadSignature, ValueError, TypeError):
        return ""
    return str(device) if User.objects.filter(pk=pk, username=name).exists() else ""
