"""Run: what was tested, on which evidence; live progress; cancel; and evidence that cannot act."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kvaudit.auditor.runner import CANCELLED
from kvaudit.server.audits.models import Evidence
from kvaudit.server.incidents import restore
from tests.server.incidents.builders import (
    LEAKING_LENGTHS,
    a_target,
    an_incident,
    runs_version,
    the_internal_set,
)
from tests.server.incidents.builders import a_result as a_finished
from tests.server.incidents.builders import rejection_measures as measures
from tests.server.web import builders
from tests.server.web.deployment.figure_measures import canary
from tests.server.web.pages import page_text

PASS = dict.fromkeys(builders.PASSIVE, "pass")
BODY = b'{"version": "0.5.19", "note": "\xe2\x80\xae<script>alert(1)</script>\x00"}'


def test_a_run_says_what_it_found_what_not_and_what_to_do(people, pair):
    run = builders.a_run(pair, {**PASS, "pool": "fail"}, measures=builders.SHORT_POOL)
    page = page_text(people.viewer.get(f"/runs/{run.pk}/"))
    assert "1 failed (pool), 3 passed (version, drift, exposure)" in page
    assert "What this does not prove:" in page
    assert "What to do:" in page
    assert "Longest reachable request (tokens)" in page
    assert "681,274" in page
    assert "<bdi>decode-0</bdi></td>" in page, "measures of nodes are a table"


def test_a_missed_run_is_no_pass(people, pair):
    run = builders.a_run(pair, state="missed", trigger="schedule", slots=3)
    page = page_text(people.viewer.get(f"/runs/{run.pk}/"))
    assert "Missed (3 slots)" in page
    assert "verdict-pass" not in page


def test_a_check_without_a_result_is_named(people, pair):
    run = builders.a_run(pair, {"pool": "pass"}, checks=["pool", "version"])
    page = page_text(people.viewer.get(f"/runs/{run.pk}/"))
    assert "Without a result" in page
    assert "version: not carried out" in page.replace("<bdi>", "").replace("</bdi>", "")


def test_a_fail_of_an_earlier_attempt_stands(people, pair):
    run = builders.a_run(pair, {"pool": "fail"})
    first = run.results.get()
    run.results.create(
        deployment=pair,
        attempt=2,
        check_id="pool",
        verdict="pass",
        summary="Now it fits.",
        observed_at=first.observed_at,
    )
    type(run).objects.filter(pk=run.pk).update(attempt=2)
    page = page_text(people.viewer.get(f"/runs/{run.pk}/"))
    lead, _, others = page.partition("Other attempts of this run")
    assert first.summary in lead
    assert "Now it fits." in others


def test_who_may_see_read_and_cancel(people, pair):
    run = builders.a_run(pair, state="running")
    paths = f"/runs/{run.pk}/", f"/runs/{run.pk}/progress/"
    for path in paths:
        assert people.stranger.get(path, headers={"HX-Request": "true"}).status_code == 404
        assert people.viewer.get(path, headers={"HX-Request": "true"}).status_code == 200
    assert people.stranger.post(f"/runs/{run.pk}/cancel/").status_code == 404
    assert people.viewer.post(f"/runs/{run.pk}/cancel/").status_code == 403
    run.refresh_from_db()
    assert run.cancel_requested_at is None
    assert people.operator.post(f"/runs/{run.pk}/cancel/").status_code == 302
    run.refresh_from_db()
    assert run.cancel_requested_at is not None


def test_cancelling_what_has_ended_changes_nothing(people, pair):
    run = builders.a_run(pair, PASS)
    answer = people.operator.post(f"/runs/{run.pk}/cancel/", follow=True)
    assert "already ended" in page_text(answer)
    run.refresh_from_db()
    assert run.state == "finished"


def test_progress_is_polled_until_the_end(people, pair):
    run = builders.a_run(
        pair,
        state="running",
        progress={
            "nodes": 2,
            "read": 1,
            "checks": {"pool": "pass", "version": "running", "drift": "waiting"},
        },
    )
    address = f"/runs/{run.pk}/progress/?page=run"
    answer = people.viewer.get(address, headers={"HX-Request": "true"})
    page = page_text(answer)
    assert 'hx-trigger="every 1s"' in page
    assert "Carrying out version." in page
    assert "1 of 4 checks, 1 of 2 nodes read" in page
    assert "Cancel" not in page, "a viewer cannot cancel"
    assert people.viewer.get(address)["Location"] == f"/runs/{run.pk}/", "without htmx: the run's page"
    type(run).objects.filter(pk=run.pk).update(state="finished", verdict="pass")
    answer = people.viewer.get(address, headers={"HX-Request": "true"})
    assert "hx-trigger" not in page_text(answer)
    assert answer["HX-Refresh"] == "true"


def test_progress_of_any_shape_is_survived(people, pair):
    for odd in ([], "x", {"checks": []}, {"nodes": "many", "read": None, "checks": {"pool": 7}}):
        run = builders.a_run(pair, state="running", progress=odd)
        assert people.viewer.get(f"/runs/{run.pk}/").status_code == 200
        run.delete()


def test_evidence_is_for_auditors_and_is_only_text(people, pair):
    run = builders.a_run(pair, {"pool": "pass"}, bodies=[BODY])
    path = f"/runs/{run.pk}/evidence/{Evidence.objects.get().pk}/"
    assert people.stranger.get(path).status_code == 404
    assert people.viewer.get(path).status_code == 403
    assert path not in page_text(people.viewer.get(f"/runs/{run.pk}/"))
    assert path in page_text(people.auditor.get(f"/runs/{run.pk}/"))
    page = page_text(people.auditor.get(path))
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert "U+202E" in page
    assert "U+0000" in page


def test_a_download_is_the_very_bytes_and_never_a_page(people, pair):
    run = builders.a_run(pair, {"pool": "pass"}, bodies=[BODY])
    answer = people.auditor.get(f"/runs/{run.pk}/evidence/{Evidence.objects.get().pk}/?download=1")
    assert answer.content == BODY
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"].startswith("attachment")
    assert answer["X-Content-Type-Options"] == "nosniff"


def test_evidence_of_another_run_is_not_found_here(people, pair):
    builders.a_run(pair, {"pool": "pass"}, bodies=[BODY])
    other = builders.a_run(pair, {"pool": "pass"})
    path = f"/runs/{other.pk}/evidence/{Evidence.objects.get().pk}/"
    assert people.auditor.get(path).status_code == 404
    assert people.auditor.get(f"/runs/{other.pk}/evidence/%00..%2f/").status_code == 404


def test_evidence_that_was_altered_is_said_to_prove_nothing(people, pair):
    run = builders.a_run(pair, {"pool": "pass"}, bodies=[BODY])
    Evidence.objects.update(body=b"not what it was")
    answer = people.auditor.get(f"/runs/{run.pk}/evidence/{Evidence.objects.get().pk}/")
    assert answer.status_code == 500
    assert "proves nothing any more" in page_text(answer)


def test_queries_do_not_grow_with_results(people, pair):
    small, large = (
        builders.a_run(pair, {"pool": "pass"}),
        builders.a_run(pair, PASS, bodies=[b"1", b"2", b"3"]),
    )
    people.viewer.get("/")

    def queries(pk: int) -> int:
        with CaptureQueriesContext(connection) as seen:
            people.viewer.get(f"/runs/{pk}/")
        return len(seen)

    assert queries(large.pk) == queries(small.pk) <= 12


def active(pair, *, evidence=(), verdict="fail"):
    """A canary that met its own markers elsewhere, with the evidence of its requests."""
    run = builders.a_run(pair, {"canary": verdict})
    measures = {**canary(40), "bound": 0.04879, "confidence": 0.95}
    run.results.update(measures=measures, evidence=list(evidence))
    return run


def asked(count: int) -> list[dict[str, str]]:
    return [
        {
            "kind": kind,
            "sha256": f"{number:062x}{at:02x}",
            "source": f"POST /v1/completions, midpoint (864,925 tokens), tenant b, round {number}, answered",
        }
        for number in range(1, count + 1)
        for at, kind in enumerate(("request", "response", "sealed"))
    ]


def test_a_square_of_the_matrix_leads_to_its_request_and_answer(people, pair):
    page = page_text(people.auditor.get(f"/runs/{active(pair, evidence=asked(40)).pk}/"))
    leak = page.split("round 8: another request", 1)[0].rpartition('<a href="#')[2].partition('"')[0]
    row = page.partition(f'<tr id="{leak}">')[2].partition("</tr>")[0]
    assert '<td class="num">8</td>' in row
    assert f"{8:062x}01" in row, "the answer's digest"
    assert "Evidence (40 requests, 120 pieces)" in page


def test_only_a_pass_states_a_bound_and_in_percent(people, pair):
    for verdict in ("fail", "inconclusive", "error"):
        page = page_text(people.viewer.get(f"/runs/{active(pair, verdict=verdict).pk}/"))
        assert "Leaks are rarer than" not in page
    page = page_text(people.viewer.get(f"/runs/{active(pair, verdict='pass').pk}/"))
    assert "<bdi>Leaks are rarer than</bdi>" in page
    assert "<bdi>4.9 %</bdi>" in page


def test_hundreds_of_requests_cost_no_query_each(people, pair, django_assert_max_num_queries):
    run = active(pair, evidence=asked(200))
    address = f"/runs/{run.pk}/"
    people.auditor.get(address)
    with CaptureQueriesContext(connection) as few:
        people.auditor.get(f"/runs/{active(pair, evidence=asked(1)).pk}/")
    with django_assert_max_num_queries(len(few)):
        assert page_text(people.auditor.get(address)).count("<tr id=") == 200


def test_a_run_leads_to_the_incident_that_rests_on_it(people):
    incident = an_incident(a_target("chat-xl", team=people.team))
    run = incident.citations.get().result.run
    page = page_text(people.viewer.get(f"/runs/{run.pk}/")).partition('class="columns"')[0]
    assert f'href="/incidents/{incident.pk}/"' in page
    assert "(open, critical) rests on what this run found." in page
    other = a_finished(incident.deployment, "pool").run
    assert "/incidents/" not in page_text(people.viewer.get(f"/runs/{other.pk}/")).partition("<main")[2]


def test_a_run_that_replayed_an_incident_and_let_it_go_says_so(people):
    incident = an_incident(a_target("chat-xl", team=people.team))
    operator = people.operating_user
    runs_version(incident.deployment, "0.5.22")
    restore.record_fix(incident=incident, actor=operator, description="Upgraded.")
    run = restore.replay(incident=incident, actor=operator).run
    assert "was asked again in this run." in page_text(people.viewer.get(f"/runs/{run.pk}/"))
    a_finished(incident.deployment, "rejection", run=run, measures=measures(refused=LEAKING_LENGTHS))
    the_internal_set(incident.deployment)
    restore.release(incident=incident, actor=operator)
    page = page_text(people.viewer.get(f"/runs/{run.pk}/"))
    assert "(restored, critical) was asked again in this run and was let back on this run." in page


def test_a_cancelled_run_says_so_first(people, pair):
    run = builders.a_run(
        pair,
        {"pool": "pass", "version": "error"},
        state="cancelled",
        summary="version: The run was cancelled before this was done.",
        cancel_requested_by=people.operating_user,
    )
    run.results.filter(check_id="version").update(summary=CANCELLED)
    page = page_text(people.viewer.get(f"/runs/{run.pk}/"))
    lead = " ".join(re.sub(r"<[^>]*>", " ", page.partition('class="lead">')[2].partition("</p>")[0]).split())
    name = people.operating_user.get_username()
    assert lead == f"Cancelled by {name} before it was done: 1 passed (pool), 1 not carried out (version)."
    assert f"<title>Run {run.pk}: cancelled" in page
    type(run).objects.filter(pk=run.pk).update(started_at=None)
    assert f"Cancelled by {name} before it began." in page_text(people.viewer.get(f"/runs/{run.pk}/"))


def test_an_error_of_a_cancelled_run_that_was_there_before_stays_one(people, pair):
    run = builders.a_run(pair, {"version": "error"}, state="cancelled")
    page = page_text(people.viewer.get(f"/runs/{run.pk}/"))
    assert "Cancelled before it was done: 1 in error (version)." in page


def test_a_fail_of_a_cancelled_run_is_not_hidden(people, pair):
    run = builders.a_run(pair, {"pool": "fail"}, state="cancelled")
    page = page_text(people.viewer.get(f"/runs/{run.pk}/"))
    assert "headline-fail" in page
    assert "Cancelled before it was done: 1 failed (pool)." in page


@pytest.mark.parametrize(
    ("left", "attempt", "said"),
    [
        (58, 1, ""),
        (20, 1, "No sign of its worker for 40 s; another takes over after 60 s."),
        (20, 2, "No sign of its worker for 40 s; the run ends as it stands after 60 s."),
        (-15, 1, "No sign of its worker for 1 min; another takes over within a minute."),
    ],
)
def test_a_worker_that_fell_silent_is_said(people, pair, monkeypatch, left, attempt, said):
    run, now = builders.a_run(pair, state="running"), timezone.now()
    type(run).objects.filter(pk=run.pk).update(attempt=attempt, lease_until=now + timedelta(seconds=left))
    monkeypatch.setattr(timezone, "now", lambda: now)
    page = page_text(people.viewer.get(f"/runs/{run.pk}/"))
    assert page.count("No sign of its worker") == (2 if said else 0), "in the headline and with the progress"
    assert (said or "Reading the nodes.") in page


def test_a_run_whose_worker_was_lost_waits_for_another(people, pair):
    run = builders.a_run(pair, state="queued")
    type(run).objects.filter(pk=run.pk).update(attempt=1)
    assert "another is to take over" in page_text(people.viewer.get(f"/runs/{run.pk}/"))
    type(run).objects.filter(pk=run.pk).update(attempt=0)
    assert "another is to take over" not in page_text(people.viewer.get(f"/runs/{run.pk}/"))


def test_the_run_to_compare_with_has_a_check_in_common(people, pair):
    builders.a_run(pair, {"pool": "pass"})
    wanted = builders.a_run(pair, {"pool": "fail", "version": "pass"})
    builders.a_run(pair, {"drift": "pass"})
    builders.a_run(pair, {"version": "error"}, state="cancelled")
    run = builders.a_run(pair, {"version": "pass", "exposure": "pass"})
    page = page_text(people.viewer.get(f"/runs/{run.pk}/"))
    assert f"/compare/?a={wanted.pk}&amp;b={run.pk}" in page
    assert "The run before that carried out version, <a" in page
    alone = builders.a_run(pair, {"rejection": "pass"})
    assert "/compare/?a=" not in page_text(people.viewer.get(f"/runs/{alone.pk}/"))


def test_a_request_says_why_its_prompt_is_not_there_and_how_to_send_it_again(people, pair):
    run = builders.a_run(pair, {"pool": "fail"}, bodies=[BODY], seed=4_711)
    path = f"/runs/{run.pk}/evidence/{Evidence.objects.get().sha256}/"
    assert "The prompt itself is not stored" not in page_text(people.auditor.get(path))
    run.kept_evidence.update(kind="request")
    page = page_text(people.auditor.get(path))
    assert "it was drawn from the run’s seed (4711)" in page
    assert f'href="/runs/{run.pk}/#again"' in page
    type(run).objects.filter(pk=run.pk).update(state="running", verdict=None, finished_at=None)
    assert "4711" not in page_text(people.auditor.get(path)), "markers are still to be drawn from it"


def test_words_of_active_checks_are_explained(people, pair):
    page = page_text(people.viewer.get(f"/runs/{active(pair).pk}/"))
    assert 'href="/help/#words"' in page
    named = page_text(people.viewer.get("/help/"))
    for anchor in ("words", "word-nonce", "word-marker", "word-surfacing", "word-dirtying", "word-void-trial",
                   "word-fingerprint", "word-headroom", "word-drift", "word-boundary-lengths"):  # fmt: skip
        assert named.count(f'id="{anchor}"') == 1


def test_a_queued_run_says_what_it_waits_for(people, pair):
    def said(**fields):
        run = builders.a_run(pair, state="queued", **fields)
        type(run).objects.filter(pk=run.pk).update(kind="active")
        page = page_text(people.viewer.get(f"/runs/{run.pk}/"))
        recent = page_text(people.viewer.get("/d/chat-large/history/")).partition("Recent runs")[2]
        return page, recent

    for page in said():
        assert "Waiting for a worker." in page
    ahead = builders.a_run(pair, state="running")
    for page in said():
        assert "Waiting for a worker." in page, "one that only reads holds up nobody"
    type(ahead).objects.filter(pk=ahead.pk).update(kind="active")
    for page in said():
        assert f"After run {ahead.pk}, which sends prompts to this deployment now." in page
    later = timezone.now() + timedelta(days=3, minutes=1)
    for page in said(not_before=later):
        assert f"Starts in 3 d, at {later:%Y-%m-%d %H:%M}." in page
