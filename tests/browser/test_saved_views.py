"""Saved views beside the filters of fleet, compliance and history, in a real browser."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from kvaudit.server.accounts.models import User
from kvaudit.server.inquiries.models import SavedView
from kvaudit.server.inquiries.saved_views.services import save_view
from tests.browser.looks import faults
from tests.browser.test_pages import EVIL
from tests.factories import a_team, a_user
from tests.server.web import builders

pytestmark = pytest.mark.django_db(transaction=True)

PAGES = {
    "fleet": "/?verdict=fail",
    "compliance": "/compliance/?status=fail",
    "history": "/history/?verdict=fail",
}


@pytest.fixture
def fleet():
    team = a_team("platform")
    made = builders.a_fleet(team, 9)
    builders.a_run(made[0], {"pool": "fail"}, measures=builders.SHORT_POOL)
    return team


def _keep(team, page, path, many):
    admin, colleague = User.objects.get(username="admin"), a_user(f"colleague-{page}", team=team)
    query = path.partition("?")[2]
    save_view(user=admin, page=page, name="What is at risk", query=query)
    for number in range(many):
        save_view(
            user=colleague,
            page=page,
            name=f"Shared question number {number}",
            query="q=chat",
            share="platform",
        )
    save_view(user=colleague, page=page, name=EVIL, query="q=chat", share="platform")


def test_views_are_accessible_at_every_width(visit, fleet):
    for page, path in PAGES.items():
        _keep(fleet, page, path, many=12)

    def unfold(name: str, page: Any) -> None:
        page.get_by_text("Save these filters, or remove a view").click()
        expect(page.get_by_label("Save these filters as")).to_be_visible()

    assert faults(visit(), PAGES, prepare=unfold) == {}


@pytest.mark.parametrize("page", PAGES)
def test_a_view_is_kept_found_and_removed_without_javascript(visit, fleet, page):
    visitor = visit(java_script_enabled=False)
    shown = visitor.go(PAGES[page])
    shown.get_by_text("Save these filters as a view").click()
    shown.get_by_label("Save these filters as").fill("What is at risk")
    shown.get_by_label("Listed for").select_option("me and platform")
    shown.get_by_role("button", name="Save", exact=True).click()
    expect(shown.get_by_role("status")).to_contain_text("platform lists it too")
    expect(shown.get_by_role("link", name="What is at risk")).to_have_attribute("aria-current", "true")
    path, _, query = PAGES[page].partition("?")
    visitor.go(path)
    shown.get_by_role("link", name="What is at risk").click()
    expect(shown).to_have_url(re.compile(re.escape(f"{path}?{query}") + "$"))
    shown.get_by_text("Save these filters, or remove a view").click()
    shown.get_by_role("button", name="Remove the view What is at risk").click()
    expect(shown.get_by_role("status")).to_contain_text("The view was removed.")
    assert not SavedView.objects.exists()
