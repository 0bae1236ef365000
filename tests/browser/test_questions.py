"""The five readers and what each comes to ask, answered by clicking from the first page on.

Security's is in `test_history`, since it wants an imported log.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Locator, Page, expect

from kvaudit.server.audits.models import Overdue
from kvaudit.server.fleet.models import Deployment
from tests.browser.conftest import PASSWORD
from tests.factories import a_team
from tests.server.checklists.claims import a_waiver
from tests.server.incidents.builders import an_incident
from tests.server.web import builders

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def fleet() -> list[Deployment]:
    return builders.a_fleet(a_team("platform"), 7)


def test_on_call_it_failed_at_three_what_do_i_do_now(visit: Any, fleet: list[Deployment]) -> None:
    incident = an_incident(fleet[5])
    page: Page = visit().go("/")
    page.get_by_role("row", name=re.compile("^chat-005 ")).get_by_role(
        "link", name=re.compile("open incident")
    ).click()
    expect(page.get_by_text("tenants may still be in danger")).to_be_visible()
    steps = page.get_by_role("region", name="What to do now").get_by_role("listitem")
    expect(steps.filter(has_text="Quarantine the deployment").first).to_be_visible()
    page.get_by_role("region", name="Evidence").get_by_role("link", name=re.compile("^run ")).click()
    expect(page.get_by_text("rejection says fail").first).to_be_visible()
    expect(page.get_by_text("Stop serving these lengths.")).to_be_visible()
    assert incident.state == "open"


def test_platform_engineers_may_this_node_take_traffic(visit: Any, fleet: list[Deployment]) -> None:
    for name, answer in (
        ("chat-000", "No: the gate is closed."),
        ("chat-001", "Not known, so no: the gate opens on a pass alone."),
        ("chat-005", "Yes, by what was last read: the gate is open."),
    ):
        page: Page = visit().go("/")
        page.get_by_role("row", name=re.compile(f"^{name} ")).get_by_role("link", name=name).click()
        page.get_by_role("link", name="Deployment gate").click()
        expect(page.get_by_text(answer)).to_be_visible()
        expect(page.get_by_label("Command")).to_contain_text(f"--deployment {name} --token-env KVAUDIT_TOKEN")


def test_managers_what_is_waived_by_whom_until_when_and_is_it_getting_better(
    visit: Any, fleet: list[Deployment]
) -> None:
    Deployment.objects.update(owner="Ada Example", contact="#inference")
    waiver = a_waiver(fleet[1], "1", expires_at=timezone.now() + timedelta(days=9))
    page: Page = visit().go("/")
    page.get_by_role("link", name="Compliance", exact=True).click()
    page.get_by_role("link", name="Waivers").first.click()
    row = page.get_by_role("row").filter(has_text="chat-001")
    expect(row).to_contain_text(waiver.decided_by.get_username())
    row.get_by_role("link").first.click()
    expect(page.get_by_text("In force until")).to_be_visible()
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Compliance").click()
    page.get_by_role("link", name="Weekly summary").click()
    expect(page.get_by_role("region", name="Ends soon")).to_contain_text("waiver of item 1, chat-001")
    owners = page.get_by_role("group", name="Owners")
    owner = owners.get_by_role("row").filter(has_text="Ada Example")
    expect(owner.get_by_role("link", name="chat-000")).to_be_visible()


def test_the_scheduler_what_runs_by_itself_and_what_is_late(visit: Any, fleet: list[Deployment]) -> None:
    plan = builders.a_plan(fleet[5], name="nightly", cron="0 2 * * *", zone="Europe/Berlin")
    Overdue.objects.create(plan=plan, deployment=fleet[5], since=timezone.now() - timedelta(hours=3))
    page: Page = visit().go("/")
    expect(page.get_by_role("row", name=re.compile("^chat-005 "))).to_contain_text("overdue")
    page.get_by_role("link", name="Plans", exact=True).click()
    page.get_by_role("link", name="nightly").click()
    expect(page.get_by_role("region", name="Next slots").get_by_role("listitem").first).to_be_visible()


def tab_to(page: Page, target: Locator, most: int = 60) -> None:
    """Forward by Tab until the target has the focus, which must be visible there."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if target.evaluate("it => it === document.activeElement"):
            assert target.evaluate("it => getComputedStyle(it).outlineStyle") != "none"
            return
    raise AssertionError(f"{most} times Tab do not lead to {target}")


def test_from_the_login_to_the_evidence_by_keyboard_alone(visit: Any, fleet: list[Deployment]) -> None:
    page: Page = visit(login=False).go("/")
    tab_to(page, page.get_by_label("Username"))
    page.keyboard.type("admin")
    tab_to(page, page.get_by_label("Password"), 3)
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    risk = page.get_by_role("region", name="Is anybody at risk?")
    expect(risk).to_be_visible()
    tab_to(page, risk.get_by_role("link", name="chat-000"))
    page.keyboard.press("Enter")
    expect(page.get_by_text("Failing: pool, version.").first).to_be_visible()
    tab_to(page, page.get_by_role("link", name="See what failed"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=re.compile("^pool"))).to_be_visible()
    tab_to(page, page.get_by_text("As stored, JSON").first)
    page.keyboard.press("Enter")
    expect(page.get_by_text('"pool_tokens": 681280').first).to_be_visible()
