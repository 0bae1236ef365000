"""Compliance, its items, waivers, attestations, checklist and weekly summary in a real browser."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from kvaudit.server.audits.models import CheckState, Overdue, StateChange
from kvaudit.server.checklists.models import DailyCount, OwnItem, Waiver
from kvaudit.server.fleet.models import Deployment
from tests.browser.looks import faults
from tests.browser.test_pages import EVIL
from tests.factories import a_team, a_user
from tests.server.checklists.claims import EVERYTHING, a_waiver, an_attestation
from tests.server.web import builders

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def addresses() -> dict[str, str]:
    """A fleet in which every mark there is is shown, hostile words included."""
    now = timezone.now()
    platform, search = a_team("platform"), a_team("search")
    fleet = builders.a_fleet(platform, 9)
    other = builders.a_pair("ranker", team=search)
    Deployment.objects.update(created_at=now - timedelta(days=40))
    builders.a_state(other, dict.fromkeys(EVERYTHING, "pass"), since=now - timedelta(days=20))
    Deployment.objects.filter(pk=fleet[3].pk).update(owner=EVIL[:300], contact=EVIL[:300])
    for check in ("canary", "session", "concurrency"):
        CheckState.objects.filter(deployment=fleet[5], check_id=check).delete()
    leaking = builders.a_run(fleet[6], {"canary": "fail"})
    CheckState.objects.filter(deployment=fleet[6], check_id="canary").update(
        verdict="fail", severity="critical", run=leaking, result=leaking.results.get(),
        summary="Tenant A's marker came back in tenant B's answer, 4 of 4 words.",
    )  # fmt: skip
    team_wide = a_waiver(None, "1", team=platform, requester=a_user("olga"))
    idle = a_waiver(fleet[6], "4", expires_at=now + timedelta(days=3), reason=EVIL)
    a_waiver(fleet[8], "2", decision="refused", decision_note="Not while it serves customers.")
    pending = a_waiver(fleet[2], "5", decision="pending")
    attested = an_attestation(fleet[5], "D", statement=EVIL, expires_at=now + timedelta(days=9))
    an_attestation(None, "3", team=platform)
    own = OwnItem.objects.create(
        team=platform,
        key="K1",
        title="Salt at the gateway " + EVIL[:60],
        rule=EVIL[:2_000],
        checks=["prefix"],
    )
    OwnItem.objects.create(
        team=search, key="K2", title="Only for pairs", rule="Both.", checks=["pool"], applies_to="unified"
    )
    Overdue.objects.create(
        plan=builders.a_plan(fleet[1]), deployment=fleet[1], since=now - timedelta(hours=5)
    )
    StateChange.objects.create(
        at=now - timedelta(minutes=1),
        deployment=fleet[0],
        what="capacity",
        summary=f"prefill-0: pool moved {EVIL}",
    )
    today = now.date()
    for week in range(20):
        for status, count in (("pass", 40 + week), ("attested", 4), ("waived", 5 + week % 3), ("inconclusive", 30 - week),
                              ("error", 2), ("fail", 3)):  # fmt: skip
            DailyCount.objects.create(
                day=today - timedelta(days=1 + 7 * week), team=platform, item="1", status=status, count=count
            )
    slug = fleet[6].slug
    return {
        "compliance": "/compliance/",
        "compliance filtered away": "/compliance/?q=zzz",
        "compliance as of no day": "/compliance/?as_of=soon",
        "compliance as of": f"/compliance/?as_of={(now - timedelta(days=10)).date()}",
        "compliance printed": "/compliance/print/",
        "item leaking": f"/d/{slug}/items/4/",
        "item transferred": f"/d/{slug}/items/3/",
        "item attested": f"/d/{fleet[5].slug}/items/D/",
        "item own": f"/d/{slug}/items/K1/",
        "attest": f"/d/{slug}/items/D/attest/",
        "ask": f"/d/{slug}/items/1/waive/",
        "ask for a team": "/teams/platform/items/B/waive/",
        "waivers": "/waivers/",
        "waiver in force": f"/waivers/{team_wide.pk}/",
        "waiver idle": f"/waivers/{idle.pk}/",
        "waiver pending": f"/waivers/{pending.pk}/",
        "attestation": f"/attestations/{attested.pk}/",
        "checklist": "/checklist/",
        "own item": f"/checklist/items/{own.series}/",
        "new item": "/checklist/platform/new/",
        "summary": "/summary/",
    }


def test_pages_are_accessible_keep_to_the_policy_and_fit(visit, addresses):
    def drawn(name: str, page: Any) -> None:
        if name == "compliance":
            page.locator("#figure-compliance-trend").scroll_into_view_if_needed()
            expect(page.locator("#figure-compliance-trend[data-drawn]")).to_be_visible()

    assert faults(visit(), addresses, part="compliance", prepare=drawn) == {}


def test_everything_works_without_javascript(visit, addresses):
    visitor = visit(java_script_enabled=False)
    page = visitor.go(addresses["attest"])
    page.get_by_label("Statement").fill("Slots are reset on release.")
    page.get_by_label(re.compile("^Evidence as a file")).set_input_files(
        {"name": "proof.txt", "mimeType": "text/plain", "buffer": b"what we saw"}
    )
    page.get_by_label("Holds until").fill((timezone.now().date() + timedelta(days=30)).isoformat())
    page.get_by_role("button", name="Attest").click()
    expect(page.get_by_text("Holds until")).to_be_visible()
    expect(page.get_by_role("link", name="proof.txt")).to_be_visible()


def test_a_manager_finds_who_complies_truly_and_an_approver_decides(visit, addresses):
    page = visit().go("/")
    page.get_by_role("link", name="Compliance", exact=True).click()
    expect(page.get_by_text(re.compile("complies with every item"))).to_be_visible()
    page.get_by_role("row", name=re.compile("^chat-006 ")).get_by_title(re.compile("^4 ")).click()
    expect(page.get_by_text("a verified leak cannot be waived").first).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("^run "))).to_have_count(3)
    page.goto(page.url.split("/d/")[0] + addresses["waiver pending"])
    page.get_by_label(re.compile("^Reason")).fill("Agreed until the next hardware.")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("In force until")).to_be_visible()
    assert Waiver.objects.filter(decision="approved", item="5").count() == 1
