"""An export with progress, in a real browser: begun, taken, counted, and said to be whole."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.looks import axe
from tests.factories import a_team
from tests.server.web import builders as scene

pytestmark = pytest.mark.django_db(transaction=True)

SHOTS = os.environ.get("KVAUDIT_SHOTS", "")  # a folder for pictures of every page


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_an_export_is_watched_to_its_end(visit, scheme, width):
    scene.a_run(scene.a_pair("chat-large", team=a_team("platform")), {"pool": "fail", "version": "pass"})
    visitor = visit(color_scheme=scheme, viewport={"width": width, "height": 900})
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
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/export-{scheme}-{width}.png", full_page=True)
    assert visitor.complaints == []
