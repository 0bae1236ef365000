"""Deployment: the reason within one look, unknown readings as unknown, and who may act."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kvaudit.server.audits.models import CheckState, Run
from tests.server.web import builders
from tests.server.web.pages import page_text

PASS = dict.fromkeys(builders.REQUIRED, "pass")
PATH = "/d/chat-large/"
TABS = ("", "checks/", "capacity/", "history/", "exposure/", "nodes/", "settings/")
PAGES = [f"{PATH}{tab}" for tab in TABS]


def text_of(client, tab: str = "") -> str:
    answer = client.get(f"{PATH}{tab}")
    assert answer.status_code == 200
    return page_text(answer)


def plain(page: str) -> str:
    """Its text without tags, in single spaces."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page))


def test_the_status_sentence_says_risk_and_reason(people, pair):
    run = builders.a_state(pair, {**PASS, "pool": "fail"}, measures=builders.SHORT_POOL)
    page = text_of(people.viewer)
    assert "Unsafe Failing: pool." in plain(page)
    assert "they reach the rejection path that leaks" in page
    assert f"/runs/{run.pk}/#check-pool" in page, "one click from the status to its evidence"


def test_what_was_shown_is_told_before_what_could_happen(people, pair):
    builders.a_state(pair, {**PASS, "pool": "fail", "exposure": "fail", "canary": "fail"})
    for check, severity, summary in (
        ("pool", "critical", "The pool is small."),
        ("exposure", "high", "A route is open."),
        ("canary", "critical", "Text of tenant a in an answer to tenant b."),
    ):
        CheckState.objects.filter(check_id=check).update(severity=severity, summary=summary)
    page = text_of(people.viewer)
    assert "shown by canary; also failing: pool. Text of tenant a in an answer to tenant b." in plain(page)


def test_nothing_ran_is_not_known(people, pair):
    page = text_of(people.viewer)
    assert "Required checks have never all run" in page
    assert "No enabled plan selects it." in page


def test_expired_evidence_is_said(people, pair):
    builders.a_state(pair, PASS, expired=True)
    page = text_of(people.viewer)
    assert "Not verified Expired: " in plain(page)
    assert "was pass, expired" in text_of(people.viewer, "checks/")


def test_readings_carry_source_and_state(people, pair):
    page = text_of(people.viewer, "nodes/")
    assert "GET /v1/loads loads[].max_total_num_tokens" in page
    assert "2,040,000" in page
    assert "max_req_input_len is absent" in page
    assert page.count('class="unknown">unknown') >= 2


def test_a_capacity_change_is_shown_field_by_field(people, pair):
    builders.a_change(pair.nodes.first())
    page = text_of(people.viewer, "history/")
    assert "expires evidence" in page
    assert "0.5.22" in page
    assert "681,280" in page


def test_a_plan_says_when_it_is_next(people, pair):
    builders.a_plan(pair, name="hourly sweep", next_due=timezone.now() + timedelta(minutes=40, seconds=30))
    page = text_of(people.viewer, "settings/")
    assert "hourly sweep" in page
    assert "in 40 min" in page


def test_strangers_get_a_404_and_readers_no_button(people, pair):
    assert people.stranger.get(PATH).status_code == 404
    assert "Run passive checks" not in text_of(people.viewer)
    assert "Run passive checks" in text_of(people.operator)


def test_audit_now_is_for_operators(people, pair):
    assert people.stranger.post(f"{PATH}audit/").status_code == 404
    assert people.viewer.post(f"{PATH}audit/").status_code == 403
    assert not Run.objects.exists()


def test_audit_now_leads_to_the_run(people, pair):
    answer = people.operator.post(f"{PATH}audit/")
    run = Run.objects.get(deployment=pair)
    assert answer["Location"] == f"/runs/{run.pk}/"
    assert run.trigger == "manual"
    assert run.actor == people.operating_user


def test_audit_now_from_a_live_page_answers_with_the_live_part(people, pair):
    answer = people.operator.post(f"{PATH}audit/", headers={"HX-Request": "true"})
    page = page_text(answer)
    assert "<html" not in page
    assert 'hx-trigger="every 1s"' in page
    assert "Waiting for a worker." in page


def test_a_retired_deployment_cannot_be_audited(people, pair):
    type(pair).objects.filter(pk=pair.pk).update(retired_at=timezone.now())
    assert "Run passive checks" not in text_of(people.operator)
    answer = people.operator.post(f"{PATH}audit/", follow=True)
    assert "is retired" in page_text(answer)
    assert not Run.objects.exists()


@pytest.mark.parametrize("evil", ["<script>alert(1)</script>", "\u202egnp.exe", "z" * 10_000, "\ufdd0\u200b"])
def test_hostile_text_from_engines_stays_text(people, pair, evil):
    run = builders.a_state(pair, {**PASS, "pool": "fail"})
    run.results.update(summary=evil, next_step=evil, does_not_prove=evil, measures={evil[:50]: evil})
    pair.check_states.update(summary=evil)
    node = pair.nodes.first()
    node.snapshots.update(current=False)
    builders.a_snapshot(node, version="9", notes=[evil], settings={evil[:50]: builders.reading(evil, evil)})
    builders.a_change(node, diff=[{"name": evil[:50], "before": evil, "after": evil, "significant": True}])
    for path in (*PAGES, "/", f"/runs/{run.pk}/"):
        answer = people.auditor.get(path)
        assert answer.status_code == 200
        assert b"<script>alert" not in answer.content
        assert "\u202e".encode() not in answer.content


@pytest.mark.parametrize("facts", [[], "text", 7, {"version": 5, "ranks": "x", "settings": [], "notes": "n"}])
def test_facts_of_any_shape_are_survived(people, pair, facts):
    node = pair.nodes.first()
    node.snapshots.update(facts=facts)
    assert "unknown" in text_of(people.viewer, "nodes/")
    assert "Never read" not in text_of(people.viewer)


@pytest.mark.parametrize("tab", TABS)
def test_every_tab_leads_to_every_other_and_says_which_it_is(people, pair, tab):
    bar = re.search(r'<nav class="tabs".*?</nav>', text_of(people.viewer, tab), re.S)
    assert bar
    assert re.findall(r'href="([^"]+)"', bar[0]) == PAGES
    assert re.findall(r'href="([^"]+)" aria-current="page"', bar[0]) == [f"{PATH}{tab}"]
    assert people.stranger.get(f"{PATH}{tab}").status_code == 404


@pytest.mark.parametrize(
    ("tab", "most"),
    [("", 36), ("checks/", 36), ("capacity/", 22), ("history/", 26), ("nodes/", 18), ("settings/", 22)],
)
def test_queries_do_not_grow_with_nodes(people, pair, tab, most):
    few = _queries(people.operator, tab)
    for number in range(10):
        node = pair.nodes.create(name=f"decode-{number + 1}", url="http://127.0.0.1:9/x", role="decode")
        builders.a_snapshot(node)
        builders.a_run(pair, PASS)
    assert _queries(people.operator, tab) <= few + 1, "a finished run adds its results once"
    assert few <= most


def _queries(client, tab: str) -> int:
    client.get(f"{PATH}{tab}")
    with CaptureQueriesContext(connection) as seen:
        client.get(f"{PATH}{tab}")
    return len(seen)


def test_the_running_audit_is_followed_before_one_that_waits(people, pair):
    running = builders.a_run(pair, state="running")
    builders.a_run(pair, state="queued")
    later = builders.a_run(pair, state="queued")
    type(later).objects.filter(pk=later.pk).update(not_before=timezone.now() + timedelta(minutes=15))
    assert f"/runs/{running.pk}/progress/" in text_of(people.viewer)
    running.delete()
    page = text_of(people.viewer)
    assert "Waiting for a worker." in page
    assert f"/runs/{later.pk}/progress/" not in page, "a re-run in a quarter of an hour is nothing to watch"


def test_a_cancelled_run_is_listed_as_one(people, pair):
    builders.a_run(pair, {"pool": "error"}, state="cancelled")
    recent = (
        text_of(people.viewer, "history/").partition('aria-label="Recent runs"')[2].partition("</table>")[0]
    )
    assert "cancelled</span>" in recent
    assert "verdict-error" not in recent
    builders.a_run(pair, {"pool": "fail"}, state="cancelled")
    recent = (
        text_of(people.viewer, "history/").partition('aria-label="Recent runs"')[2].partition("</table>")[0]
    )
    assert "verdict-fail" in recent, "a fail stands"


def test_what_was_followed_live_offers_the_new_status_when_it_has_ended(people, pair):
    run = builders.a_run(pair, {"pool": "pass"})
    part = page_text(people.viewer.get(f"/runs/{run.pk}/progress/", headers={"HX-Request": "true"}))
    assert '<a class="button" href="/d/chat-large/">Reload for the new status</a>' in part
    assert "What this page says around it is from before." in part
    whole = people.viewer.get(f"/runs/{run.pk}/progress/?page=run", headers={"HX-Request": "true"})
    assert whole["HX-Refresh"] == "true"


def test_an_audit_takes_the_message_of_the_act_before_it_away(people, pair):
    assert '<div role="status" id="notes" hidden>' in text_of(people.operator), (
        "there is always one to replace"
    )
    asked = page_text(people.operator.post("/d/chat-large/audit/", headers={"HX-Request": "true"}))
    assert '<div role="status" id="notes" hidden hx-swap-oob="true"></div>' in asked
    run = Run.objects.get()
    part = page_text(people.operator.get(f"/runs/{run.pk}/progress/", headers={"HX-Request": "true"}))
    assert 'id="notes"' not in part, "a message that came since stays"
