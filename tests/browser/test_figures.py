"""Figures in a real browser: drawn within the policy, quick with thousands of marks, usable by mouse and keys,
right in both schemes, and with a table that says the same."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.test_pages import _axe
from tests.factories import a_team
from tests.web.figures import history

pytestmark = pytest.mark.django_db(transaction=True)

TIMELINE = "#figure-timeline"


def drawn(page: Any, name: str = TIMELINE) -> Any:
    figure = page.locator(name)
    figure.scroll_into_view_if_needed()
    expect(page.locator(f"{name}[data-drawn]")).to_be_visible(timeout=15_000)
    return figure


def test_the_timeline_is_drawn_within_the_policy(visit):
    history.a_past("chat-past", team=a_team("platform"))
    visitor = visit()
    page = visitor.go("/d/chat-past/")
    figure = drawn(page)
    assert visitor.complaints == []
    assert figure.locator(".scatterlayer .point").count() > 60
    assert _axe(page) == []
