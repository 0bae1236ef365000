"""What somebody does on the pages of channels, pins and the ledger, with and without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core import mail
from django.db import connection
from playwright.sync_api import expect

from kvaudit.server.ledger import tasks as ledger_tasks
from kvaudit.server.ledger.models import Verification
from kvaudit.server.notify.delivery import deliver_due
from kvaudit.server.notify.models import Channel
from tests.browser.looks import axe
from tests.factories import a_team
from tests.server.web import builders

pytestmark = pytest.mark.django_db(transaction=True)


def elsewhere(work: Callable[[], object]) -> None:
    """As a worker would: in this thread runs the browser's event loop, which delivery cannot share."""

    def done() -> None:
        try:
            work()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(done).result()


@pytest.mark.parametrize("javascript", [True, False])
def test_a_channel_is_made_and_its_test_followed(visit, javascript):
    visitor = visit(java_script_enabled=javascript)
    page = visitor.go("/settings/")
    page.get_by_role("link", name="Channels").click()
    page.get_by_role("link", name="Make a channel").click()
    page.get_by_label("Name").fill("On call")
    page.get_by_label("Kind").select_option("email")
    page.get_by_label("Address").fill("oncall@example.org")
    page.get_by_role("button", name="Make the channel").click()
    page.get_by_role("button", name="Send test").click()
    outcome = page.locator("#message")
    expect(outcome).to_contain_text("Waits for a worker.")
    elsewhere(deliver_due)
    assert len(mail.outbox) == 1
    if not javascript:
        outcome.get_by_role("link", name="Reload").click()
    expect(outcome).to_contain_text("Delivered")
    page.get_by_role("button", name="Switch off").click()
    expect(page.get_by_text("Switched off: nothing is sent.")).to_be_visible()
    page.get_by_text("Remove this channel").click()
    page.get_by_role("button", name="Remove it for good").click()
    expect(page.get_by_text("Alerts are off: no channel configured.")).to_be_visible()
    assert not Channel.objects.exists()
    assert visitor.complaints == []


def test_a_webhook_s_secret_is_shown_once(visit):
    visitor = visit(viewport={"width": 360, "height": 800})
    page = visitor.go("/settings/channels/new/")
    page.get_by_label("Name").fill("Chat")
    page.get_by_label("Address").fill("https://hooks.example.org/services/x")
    page.get_by_role("button", name="Make the channel").click()
    secret = page.get_by_label("Secret", exact=True).inner_text()
    assert len(secret) >= 32
    assert axe(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.get_by_role("link", name="To the channel").click()
    assert secret not in page.content()
    assert visitor.complaints == []


@pytest.mark.parametrize("javascript", [True, False])
def test_what_runs_is_pinned_and_the_pin_ended(visit, javascript):
    builders.a_pair("chat-large", team=a_team("platform"))
    page = visit(java_script_enabled=javascript).go("/d/chat-large/settings/")
    page.get_by_role("link", name="Version pins").click()
    page.get_by_label(re.compile("^Reason for")).fill("frozen for the audit")
    page.get_by_role("button", name="Pin sglang==0.5.22").click()
    expect(page.get_by_text("frozen for the audit")).to_be_visible()
    page.get_by_label("Allowed versions").fill("newest")
    page.get_by_role("button", name="Set the pin").click()
    expect(page.locator("#id_wanted_error").get_by_text("That is no range of versions")).to_be_visible()
    page.get_by_role("button", name="End the pin sglang==0.5.22").click()
    expect(page.get_by_role("heading", name="Earlier pins of this deployment")).to_be_visible()


@pytest.mark.parametrize("javascript", [True, False])
def test_the_ledger_is_verified_in_sight(visit, javascript):
    visitor = visit(java_script_enabled=javascript)
    page = visitor.go("/settings/ledger/")
    expect(page.get_by_text("that nobody has verified yet")).to_be_visible()
    page.get_by_role("button", name="Verify now").click()
    expect(page.get_by_text("Waits for a worker, asked for by user:admin")).to_be_visible()
    ledger_tasks.verify(Verification.objects.get().pk)
    if not javascript:
        page.get_by_role("link", name="Reload").click()
    expect(page.get_by_text(re.compile("Intact: 1 entry verified"))).to_be_visible()
    digest = page.locator("dl.facts .digest").inner_text()
    page.get_by_label("Hash noted earlier").fill(digest)
    page.get_by_role("button", name="Look it up").click()
    expect(page.get_by_text("has this hash")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download all entries").click()
    assert download.value.suggested_filename.endswith(".jsonl")
    assert visitor.complaints == []
