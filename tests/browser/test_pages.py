"""Every page in a real browser: accessible in light and dark, nothing blocked, no sideways scrolling,
usable from the keyboard and without JavaScript."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone
from playwright.sync_api import expect

from kvaudit.auditor.fleetfile import parse_fleet
from kvaudit.server.audits.models import Evidence, Result, Run
from kvaudit.server.fleet import session_plans
from tests.browser.looks import axe, faults
from tests.canary_evidence import GREEN, ON_ITS_WAY, added_up
from tests.factories import a_team
from tests.server.web import builders
from tests.session_server import FLEET_FILE

pytestmark = pytest.mark.django_db(transaction=True)

EVIL = "<img src=x onerror=alert(1)>\u202e" + "w" * 3_000


@pytest.fixture
def addresses() -> dict[str, str]:
    """A fleet in which everything there is to show is shown, and where to see it."""
    team = a_team("platform")
    fleet = builders.a_fleet(team, 9)
    first = fleet[0]
    builders.a_change(first.nodes.first())
    builders.a_change(
        first.nodes.first(), diff=[{"name": "model", "before": None, "after": EVIL, "significant": True}]
    )
    failed = builders.a_run(
        first, {**dict.fromkeys(builders.PASSIVE, "pass"), "pool": "fail"}, measures=builders.SHORT_POOL,
        bodies=[b'{"version": "0.5.19", "note": "\xe2\x80\xae<script>alert(1)</script>"}'],
    )  # fmt: skip
    failed.results.filter(check_id="version").update(summary=EVIL, next_step=EVIL, measures={"odd": EVIL})
    for shown, runs in ((first, GREEN), (fleet[1], ON_ITS_WAY)):
        together = {"accumulated": added_up(*runs)}
        Result.objects.filter(deployment=shown, check_id="canary").update(measures=together)
    missed = builders.a_run(first, state="missed", trigger="schedule", slots=3)
    running = builders.a_run(
        fleet[1],
        state="running",
        progress={"nodes": 2, "read": 1, "checks": {"pool": "pass", "version": "running"}},
    )
    plan = builders.a_plan(first, name="nightly", cron="0 2 * * *", zone="Europe/Berlin")
    described = parse_fleet(FLEET_FILE.format(url="http://10.0.0.2:80/" + "long-path-" * 20)).deployments[0]
    first.session = session_plans.as_json(described.session)
    first.save()
    return {
        "fleet": "/",
        "nothing found": "/?q=zzz",
        "deployment unsafe": f"/d/{first.slug}/",
        "deployment running": f"/d/{fleet[1].slug}/",
        "deployment never audited": f"/d/{fleet[4].slug}/",
        "checks": f"/d/{first.slug}/checks/",
        "capacity": f"/d/{first.slug}/capacity/",
        "its history": f"/d/{first.slug}/history/",
        "nodes": f"/d/{first.slug}/nodes/",
        "its settings": f"/d/{first.slug}/settings/",
        "keys": f"/d/{first.slug}/keys/",
        "session API": f"/d/{first.slug}/session/",
        "retire": f"/d/{first.slug}/retire/",
        "run failed": f"/runs/{failed.pk}/",
        "run missed": f"/runs/{missed.pk}/",
        "run running": f"/runs/{running.pk}/",
        "evidence": f"/runs/{failed.pk}/evidence/{Evidence.objects.get().pk}/",
        "plans": "/plans/",
        "plan": f"/plans/{plan.series}/",
        "plan form": f"/plans/{plan.series}/change/",
        "import": "/import/?sample=1",
        "help": "/help/",
        "zone": "/zone/",
        "password": "/password/",
        "not found": "/nowhere/",
    }


def test_pages_are_accessible_keep_to_the_policy_and_fit(visit, addresses):
    assert faults(visit(), addresses, part="fleet", expected="404") == {}


def test_the_ways_in_are_accessible(visit):
    visitor = visit(login=False)
    page = visitor.go("/login/")
    assert axe(page) == []
    page.get_by_label("Username").fill("nobody")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert axe(page) == []
    assert visitor.complaints == []


def test_mistakes_in_forms_are_accessible(visit, addresses):
    visitor = visit()
    page = visitor.go("/plans/new/")
    page.get_by_label("Name", exact=True).fill("Nightly")
    page.get_by_label(re.compile("^Cron")).fill("soon")
    page.get_by_role("button", name="Make the plan").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert axe(page) == []
    page = visitor.go("/import/")
    page.get_by_label("Or paste it").fill("deployments: 7")
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_role("alert")).to_contain_text("nothing was changed")
    assert axe(page) == []


def test_keys(visit, addresses):
    page = visit().go("/plans/")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search deployments")).to_be_focused()
    page.keyboard.type("chat-003")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="chat-003")).to_be_visible()
    page.locator("body").click(position={"x": 5, "y": 5})
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("Tab")


def test_the_first_tab_skips_to_the_content(visit, addresses):
    page = visit().go("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_from_the_fleet_to_the_evidence_in_two_clicks(visit, addresses):
    page = visit().go("/")
    page.get_by_role("region", name="Is anybody at risk?").get_by_role("link", name="chat-000").click()
    expect(page.get_by_text("Failing: pool, version.").first).to_be_visible()
    page.get_by_role("link", name="See what failed").click()
    expect(page.get_by_role("heading", name=re.compile("^pool"))).to_be_in_viewport()


def test_an_audit_is_followed_live_and_cancelled(visit, addresses):
    visitor = visit()
    page = visitor.go("/d/chat-004/")
    page.get_by_role("button", name="Run passive checks").click()
    live = page.locator("#live")
    expect(live.get_by_role("status")).to_have_text("Waiting for a worker.")
    assert page.url.endswith("/d/chat-004/"), "the page stays"
    run = Run.objects.get(deployment__slug="chat-004")
    Run.objects.filter(pk=run.pk).update(
        state="running", progress={"nodes": 2, "read": 2, "checks": {"pool": "fail", "version": "running"}}
    )
    expect(live.get_by_role("status")).to_have_text("Carrying out version.")
    expect(live.get_by_role("listitem").filter(has_text="pool")).to_contain_text("fail")
    live.get_by_role("button", name="Cancel this run").click()
    expect(page.get_by_text("stops before its next step").first).to_be_visible()
    assert page.url.endswith(f"/runs/{run.pk}/")
    Run.objects.filter(pk=run.pk).update(state="cancelled", verdict="inconclusive", started_at=timezone.now())
    expect(page.get_by_text("Cancelled by admin before it was done")).to_be_visible()
    assert visitor.complaints == []


def test_everything_works_without_javascript(visit, addresses):
    visitor = visit(java_script_enabled=False)
    page = visitor.go("/d/chat-004/")
    page.get_by_role("button", name="Run passive checks").click()
    run = Run.objects.get(deployment__slug="chat-004")
    assert page.url.endswith(f"/runs/{run.pk}/")
    page.get_by_role("button", name="Cancel this run").click()
    expect(page.get_by_text("stops before its next step").first).to_be_visible()
    page = visitor.go("/import/?sample=1")
    page.get_by_role("button", name="Show what would change").click()
    page.get_by_role("button", name="Make these changes").click()
    expect(page.get_by_text("Imported: ")).to_be_visible()
    expect(page.get_by_role("link", name="chat-large")).to_be_visible()


def test_a_run_prints_without_the_frame(visit, addresses):
    page = visit().go(addresses["run failed"])
    page.emulate_media(media="print")
    expect(page.get_by_role("heading", name=re.compile("^Run "))).to_be_visible()
    for frame in (".masthead", ".foot"):
        expect(page.locator(frame)).to_be_hidden()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") in (
        "rgba(0, 0, 0, 0)",
        "rgb(255, 255, 255)",
    )


def test_a_broken_page_looks_like_ours(visit, addresses, monkeypatch):
    def broken(user: Any) -> None:
        raise RuntimeError("a detail nobody should see")

    visitor = visit()
    monkeypatch.setattr("kvaudit.server.web.fleet.page.all_rows", broken)
    with override_settings(DEBUG=False):
        page = visitor.go("/")
    expect(page.get_by_role("heading", name="This page broke")).to_be_visible()
    assert "a detail nobody should see" not in page.content()
    assert axe(page) == []
