"""Figures from the keyboard: every value that the mouse finds is said, also where nothing leads anywhere."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from kvaudit.server.checklists.models import DailyCount
from tests.browser.test_figures import drawn
from tests.factories import a_deployment, a_node, a_team
from tests.server.inquiries.request_logs.test_importer import brought
from tests.server.inquiries.request_logs.test_production import ODD
from tests.server.web.deployment import figure_history

pytestmark = pytest.mark.django_db(transaction=True)


def told(page: Any, name: str, *keys: str) -> list[str]:
    """What the live region says after each key; the hover label must be there each time."""
    page.locator(f"{name} [data-plot]").focus()
    said = page.locator(f"{name} [role=status]")
    found = []
    for key in keys:
        said.evaluate("(region) => { region.textContent = ''; }")  # what is said next is said by this key
        page.keyboard.press(key)
        expect(said).not_to_be_empty()
        expect(page.locator(f"{name} .hoverlayer .hovertext").first).to_be_visible()
        found.append(said.text_content())
    return found


def test_capacity_without_any_change_says_its_levels(visit: Any) -> None:
    deployment = a_deployment("chat-plain", team=a_team("platform"), engine="sglang", context=1_048_576)
    node, now = a_node(deployment, "prefill-0", role="prefill"), timezone.now()
    figure_history.a_snapshot(node, now - timedelta(days=2), now, 681_280, "0.5.22")
    visitor = visit()
    page = visitor.go("/d/chat-plain/capacity/")
    drawn(page, "#figure-capacity")
    said = told(page, "#figure-capacity", "Home", "ArrowUp", "ArrowUp", "ArrowUp")
    assert [re.sub(r" tokens.*", "", each) for each in said] == [
        "danger zone: 681,280 to 1,048,576",
        "context: 1,048,576",
        "context × 1.25, what the pool must hold: 1,310,720",
        "context × 1.25, what the pool must hold: 1,310,720",
    ]
    assert "smallest pool: 681,280 tokens" in told(page, "#figure-capacity", "Home", "ArrowRight")[1]
    label = page.locator("#figure-capacity [data-plot]").get_attribute("aria-label")
    assert "Arrow keys go from mark to mark." in label
    page.keyboard.press("Enter")  # nothing to open
    assert page.url.endswith("/d/chat-plain/capacity/")
    assert visitor.complaints == []


def test_the_trend_says_every_part_of_a_bar(visit: Any) -> None:
    team, today = a_team("platform"), timezone.now().date()
    a_deployment("chat", team=team)
    for back, counts in ((1, {"pass": 6, "waived": 2, "fail": 2}), (8, {"pass": 5})):
        for status, count in counts.items():
            DailyCount.objects.create(
                day=today - timedelta(days=back), team=team, item="1", status=status, count=count
            )
    visitor = visit()
    page = visitor.go("/compliance/")
    name = "#figure-compliance-trend"
    drawn(page, name)
    said = told(page, name, "Home", "ArrowRight", "ArrowUp", "ArrowUp", "ArrowDown")
    assert [each.partition(";")[0] for each in said] == [
        "passed by checks: 5 of 5 cells", "passed by checks: 6 of 10 cells", "by waiver: 2 of 10 cells",
        "fail: 2 of 10 cells", "by waiver: 2 of 10 cells",
    ]  # fmt: skip
    page.get_by_role("button", name="by waiver").click()
    said = told(page, name, "Home", "ArrowRight", "ArrowUp")
    assert said[2].startswith("fail: 2 of 10")
    assert visitor.complaints == []


def test_production_that_is_too_fast_is_reached_and_opened(visit: Any) -> None:
    log = brought(*ODD, deployment=a_deployment("chat-fast", team=a_team("platform")))
    visitor = visit()
    page = visitor.go("/d/chat-fast/capacity/")
    drawn(page, "#figure-prefill")
    expect(page.locator(".note-warning", has_text="too fast to be true")).to_be_visible()
    last = told(page, "#figure-prefill", "End")[0]
    assert last.startswith(
        "32,768 to 65,535 tokens: p5 0.21 s, 60 requests; 16,384 to 32,767 tokens took 2 s"
    )
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"/logs/{log.pk}/#prefill$"))
    assert visitor.complaints == []
