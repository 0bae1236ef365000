"""A real Chromium against a live server. Synchronous playwright runs an event loop in the test's
thread, which Django's ORM refuses unless told: only here, and only for the test's own set-up."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, SetCookieParam

    from kvaudit.server.accounts.models import User

CHROMIUM = os.environ.get("KVAUDIT_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PASSWORD = "browser-tests-only-1"


def without(chromium: str, environ: Mapping[str, str]) -> NoReturn:
    """No browser: on somebody's own machine these tests are skipped, in CI that would be a hole."""
    missing = f"There is no browser at {chromium}: apt-get install chromium, or name one in KVAUDIT_CHROMIUM"
    if environ.get("CI", "").lower() not in ("", "0", "false", "no"):
        pytest.fail(f"{missing}. In CI the browser tests may not be skipped.", pytrace=False)
    pytest.skip(missing)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for a file. While playwright is started an event loop runs in this thread, and no
    test of another file that comes next on the same worker could start its own."""
    if not os.path.exists(CHROMIUM):
        without(CHROMIUM, os.environ)
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE * 1_000)
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()
    os.environ.pop("DJANGO_ALLOW_ASYNC_UNSAFE", None)


REFUSED_FORM = "the server responded with a status of 422"
"""What the browser notes of a form that comes back with its mistakes: it is meant."""


def is_complaint(message: Any) -> bool:
    """Whether the browser said that something is wrong."""
    return message.type == "error" and REFUSED_FORM not in message.text


@dataclass
class Visit:
    """A logged-in visitor. ``complaints`` gathers what the browser said was wrong: blocked by the
    policy, failed scripts, failed loads, and every request that left this server."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)

    def go(self, path: str) -> Page:
        self.page.goto(self.base + path)
        return self.page


def session_of(user: User, url: str) -> SetCookieParam:
    """The cookie of a session, as the login page would give it (which has tests of its own)."""
    from django.conf import settings
    from django.test import Client

    client = Client()
    client.force_login(user)
    return {
        "name": settings.SESSION_COOKIE_NAME,
        "value": client.cookies[settings.SESSION_COOKIE_NAME].value,
        "url": url,
    }


@pytest.fixture
def visit(browser: Browser, live_server: Any) -> Iterator[Any]:
    """A function: options of a browser context -> `Visit`, logged in as ``admin``."""
    from tests.factories import an_admin

    admin = an_admin("admin", password=PASSWORD)
    contexts = []

    def enter(*, login: bool = True, **options: Any) -> Visit:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(PATIENCE * 1_000)
        contexts.append(context)
        visitor = Visit(context.new_page(), live_server.url)
        page = visitor.page
        page.on(
            "console",
            lambda message: visitor.complaints.append(message.text) if is_complaint(message) else None,
        )
        page.on("pageerror", lambda error: visitor.complaints.append(str(error)))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((live_server.url, "data:"))
                else visitor.complaints.append(f"left the server: {request.url}")
            ),
        )
        if login:
            context.add_cookies([session_of(admin, live_server.url)])
        return visitor

    yield enter
    for context in contexts:
        context.close()
