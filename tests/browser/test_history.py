"""History, comparison, exposure and request logs in a real browser: accessible, within the policy, at every width,
without JavaScript; and the questions of a security team answered by clicking."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from kvaudit.server.audits.models import CheckState, Result
from kvaudit.server.fleet.models import Tenant
from kvaudit.server.inquiries import tasks
from kvaudit.server.inquiries.models import LogImport
from tests.browser.looks import faults
from tests.browser.test_pages import EVIL
from tests.factories import a_team
from tests.server.web import builders

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def addresses(tmp_path) -> dict[str, str]:
    team = a_team("platform")
    first, *rest = builders.a_fleet(team, 5)
    now = timezone.now()
    Tenant.objects.create(deployment=first, name="acme")
    before = builders.a_run(
        first, {"pool": "pass", "version": "fail"}, at=now - timedelta(days=9), measures=builders.LARGE_POOL
    )
    after = builders.a_run(
        first, {"pool": "fail", "drift": "pass"}, at=now - timedelta(days=1), measures=builders.SHORT_POOL
    )
    Result.objects.filter(run=after, check_id="drift").update(summary=EVIL, measures={"odd": EVIL})
    CheckState.objects.filter(deployment=first, check_id="pool").update(
        since=now - timedelta(days=5),
        last_confirmed=now - timedelta(days=4),
        expires_at=now - timedelta(days=1),  # open still: nobody looked again
        fingerprint="0123456789abcdef",
    )
    for check, verdict, start, end in (
        ("canary", "pass", 26, 12), ("rejection", "pass", 26, 12), ("canary", "fail", 3, 2),
    ):  # fmt: skip
        run = builders.a_run(
            first, {check: verdict}, at=now - timedelta(days=start), fingerprint="0123456789abcdef"
        )
        result = run.results.get()
        Result.objects.filter(pk=result.pk).update(measures={"bound": 0.0489})
        CheckState.objects.create(
            deployment=first, check_id=check, verdict=verdict, severity=result.severity, summary=result.summary,
            since=now - timedelta(days=start), last_confirmed=now - timedelta(days=end),
            expires_at=now - timedelta(days=end - 7), closed_at=now - timedelta(days=end), run=run, result=result,
        )  # fmt: skip
    return {
        "history": "/history/",
        "history filtered": "/history/?verdict=fail&deployment=chat",
        "history nothing": "/history/?check=session",
        "history odd": "/history/?since=soon",
        "compare": f"/compare/?a={before.pk}&b={after.pk}",
        "compare form": "/compare/",
        "exposure": f"/d/{first.slug}/exposure/",
        "exposure odd": f"/d/{first.slug}/exposure/?from=soon",
        "exposure untested": f"/d/{rest[3].slug}/exposure/",
        "import log": f"/d/{first.slug}/exposure/import/",
    }


@pytest.fixture
def log(tmp_path) -> Path:
    moment = (timezone.now() - timedelta(days=1)).isoformat()
    lines = ["time,prompt_tokens,tenant,id,prefill_seconds"]
    lines += [f"{moment},{700_000 if n % 9 == 0 else 9_000},{'acme' if n % 2 else 'other'},r-{n},{0.2 if n % 9 == 0 else 2}"
              for n in range(600)]  # fmt: skip
    path = tmp_path / "gateway.csv"
    path.write_text("\n".join([*lines, "broken", "=cmd()<script>,1,2,3,4"]))
    return path


def test_pages_are_accessible_keep_to_the_policy_and_fit(visit, addresses, log):
    visitor = visit()
    page = visitor.go(addresses["import log"])
    page.get_by_label("The log").set_input_files(log)
    _imported(page)
    expect(page.get_by_text("lay inside the danger zone")).to_be_visible()
    addresses["log"] = page.url.removeprefix(visitor.base)
    assert faults(visitor, addresses, part="history", expected="404") == {}


def _imported(page):
    """Import what was chosen: the upload is queued, the worker's door is opened here, the log is shown."""
    page.get_by_role("button", name="Import").click()
    expect(page).to_have_url(re.compile(r"/exposure/imports/\d+/$"))
    tasks.import_log(LogImport.objects.latest("pk").pk)
    page.reload()
    if "/imports/" in page.url:
        page.locator("a[href*='/exposure/logs/']").first.click()


def test_the_security_teams_questions_without_javascript(visit, addresses, log):
    visitor = visit(java_script_enabled=False)
    # "Show me every audit of this deployment, what was sent, what came back."
    page = visitor.go("/d/chat-000/history/")
    page.get_by_role("link", name="All its results").click()
    expect(page.get_by_role("heading", name="Audit history")).to_be_visible()
    page.get_by_label("Verdict").select_option("fail")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_label("Deployment", exact=True)).to_have_value("chat-000")
    page.get_by_text("Save these filters as a view").click()
    page.get_by_label("Save these filters as").fill("Fails of chat-000")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("link", name="Fails of chat-000").click()
    expect(page).to_have_url(re.compile(r"/history/\?deployment=chat-000&.*verdict=fail"))
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV of all rows").click()
    assert "chat-000" in Path(download.value.path()).read_text()
    page.get_by_role("row").nth(1).get_by_role("link", name=re.compile(r"^\d+$")).click()
    expect(page.get_by_role("heading", name=re.compile("^Run "))).to_be_visible()
    # "Was anybody exposed between these dates?"
    page = visitor.go("/d/chat-000/")
    page.get_by_role("link", name="Exposure", exact=True).click()
    expect(page.get_by_text("It was shown leaking for")).to_be_visible()
    page.get_by_role("link", name="Import a request log").click()
    page.get_by_label("The log").set_input_files(log)
    _imported(page)
    expect(page.get_by_text("67 requests or more of 2 tenants lay inside the danger zone.")).to_be_visible()
    page.get_by_label("Name as the log has it").fill("acme")
    page.get_by_role("button", name="Look up").click()
    expect(page.get_by_text("of its 300 requests in the window lay inside.")).to_be_visible()
    assert visitor.complaints == []
