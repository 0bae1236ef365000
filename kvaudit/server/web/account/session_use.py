"""Notes that a session was used: when, by which browser, from where. So its owner recognises it, and it ends when
nobody uses it any more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.http import HttpRequest, HttpResponse

from kvaudit.server import clock
from kvaudit.server.accounts.session_store import SessionStore
from kvaudit.server.accounts.sessions import browser_of
from kvaudit.server.web.kit.peer import bucket

NOTED_EVERY = timedelta(minutes=1)


class SessionUse:
    """Middleware after the one that knows who is asking."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        session = request.session
        # What a page asks by itself every second is not somebody at work.
        by_itself = request.method == "GET" and "HX-Request" in request.headers
        if isinstance(session, SessionStore) and not by_itself and request.user.is_authenticated:
            row = session.row_of_load
            if row is not None and clock.now() - row.last_used_at > NOTED_EVERY:
                note(request)
        return self.get_response(request)


def note(request: HttpRequest) -> None:
    """Note the use of the request's session now."""
    assert isinstance(request.session, SessionStore)
    request.session.used(browser=browser_of(request.headers.get("User-Agent", "")), address=bucket(request))
