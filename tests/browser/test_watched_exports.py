"""An export with progress, in a real browser: begun, taken, counted, and said to be whole."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.looks import axe
from tests.factories import a_team
from tests.server.web import builders

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_export_is_watched_to_its_end(visit):
    builders.a_run(
        builders.a_pair("chat-large", team=a_team("platform")), {"pool": "fail", "version": "pass"}
    )
    visitor = visit(color_scheme="dark", viewport={"width": 360, "height": 900})
    page = visitor.go("/history/?verdict=fail")
    page.get_by_role("button", name="CSV with progress").click()
    expect(page.get_by_role("status").last).to_have_text("Waits for its download.")
    assert axe(page) == []
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    body = Path(download.value.path()).read_bytes()
    expect(page.get_by_text("Sent to its end.")).to_be_visible()  # the page asked by itself
    expect(page.get_by_text(hashlib.sha256(body).hexdigest())).to_be_visible()
    assert axe(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert visitor.complaints == []
