"""The incident and library pages: what they show, who may do what, and that odd input is answered in words."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from kvaudit.server.incidents import export, library, opening, postmortem, restore
from kvaudit.server.incidents.models import Incident, Quarantine, TimelineEvent
from tests.server.incidents.builders import (
    a_leak,
    a_state,
    a_target,
    an_incident,
    an_operator,
    runs_version,
    the_internal_set,
)
from tests.server.incidents.builders import a_result as a_finished
from tests.server.incidents.builders import rejection_measures as measures
from tests.server.web.pages import page_text

HOSTILE = "<script>alert(1)</script>\u202e‮ [x](javascript:alert(2)) <img src=x onerror=alert(3)>"


@pytest.fixture
def incident(people):
    return an_incident(a_target("chat-large", team=people.team))


def act(client, incident, name, **given):
    return client.post(f"/incidents/{incident.pk}/act/", {"act": name, **given}, follow=True)


def test_the_list_and_its_filters(people, incident):
    page = page_text(people.viewer.get("/incidents/?state=lasting&severity=critical&q=chat"))
    assert "Verified leak on chat-large" in page
    assert "quarantined" in page
    assert "Report an incident" not in page
    assert "Report an incident" in page_text(people.operator.get("/incidents/"))
    assert "No incident matches" in page_text(people.viewer.get("/incidents/?state=closed"))


@pytest.mark.parametrize(
    "query", ["state=green", "after=x", "after=" + "9" * 40, "q=%00", "severity=%E2%80%AE"]
)
def test_odd_filters_narrow_nothing(people, incident, query):
    assert people.viewer.get(f"/incidents/?{query}").status_code == 200


def test_strangers_see_nothing_of_it(people, incident):
    for path in ("", "write/", "figure/", "document/", "export/md/"):
        assert people.stranger.get(f"/incidents/{incident.pk}/{path}").status_code == 404
    assert people.stranger.post(f"/incidents/{incident.pk}/act/", {"act": "mitigate"}).status_code == 404
    assert "chat-large" not in page_text(people.stranger.get("/incidents/"))


def test_readers_read_and_do_nothing(people, incident):
    page = page_text(people.viewer.get(f"/incidents/{incident.pk}/"))
    assert "What to do now" in page
    assert 'name="act"' not in page
    for name in ("mitigate", "fix", "release", "close", "ask-override", "quarantine"):
        given = {"reason": "r", "fix-description": "d"}
        assert act(people.viewer, incident, name, **given).status_code == 403, name
    assert people.viewer.get(f"/incidents/{incident.pk}/write/").status_code == 403
    incident.refresh_from_db()
    assert incident.state == "open"


def test_the_page_says_what_is_known(people, incident):
    page = page_text(people.viewer.get(f"/incidents/{incident.pk}/"))
    assert "shown at 681,274 to 681,275 tokens" in page
    assert "No beginning" in page, "no valid pass before: the window has no beginning, and says so"
    assert "under quarantine" in page
    assert "Stop serving prompts of 681,274 tokens and more" in page
    assert "Restore gate: closed" in page
    assert "sglang 0.5.19" in page


def test_a_whole_incident_in_the_browser_of_an_operator(people, incident):
    operator, deployment = people.operator, incident.deployment
    act(operator, incident, "mitigate", reason="Edge limit of 600,000 set.")
    runs_version(deployment, "0.5.22")
    act(operator, incident, "fix", **{"fix-description": "Upgraded to 0.5.22, pool raised."})
    assert "The restore gate is closed" in page_text(act(operator, incident, "release"))
    page = page_text(act(operator, incident, "replay"))
    assert "queued as run" in page
    run = incident.replays.get().run
    a_finished(deployment, "rejection", run=run, measures=measures(refused=[681_274, 681_275]))
    the_internal_set(deployment)
    assert "Restore gate: open" in page_text(operator.get(f"/incidents/{incident.pk}/"))
    assert "both tests pass" in page_text(act(operator, incident, "release"))
    assert not Quarantine.objects.of(deployment).exists()
    assert "“Summary” is empty" in page_text(act(operator, incident, "close"))
    texts = dict.fromkeys(postmortem.SECTIONS, "Words of *weight*.")
    answer = operator.post(f"/incidents/{incident.pk}/write/", {"title": "A leak", **texts}, follow=True)
    assert "<em>weight</em>" in page_text(answer)
    act(operator, incident, "cause", **{"cause-text": "A small pool."})
    for measure in ("responses", "tenants", "lengths"):
        act(
            operator, incident, "impact",
            **{"impact-measure": measure, "impact-certainty": "unknown", "impact-statement": f"{measure} are not known"},
        )  # fmt: skip
    given = {
        "action-title": "Gate the pool",
        "action-owner": people.operating_user.username,
        "action-due": "2026-12-24",
        "action-enforced_by": "check:pool",
    }
    page = page_text(act(operator, incident, "action", **given))
    assert "green</span> since" in page
    item = incident.action_items.get()
    act(operator, incident, "step", item=item.pk, to="done")
    assert "is closed" in page_text(act(operator, incident, "close"))
    incident.refresh_from_db()
    assert incident.state == "closed"
    # It fails again: the item of the closed incident opens by itself.
    a_state(a_finished(deployment, "pool", "fail"))
    opening.consume()
    item.refresh_from_db()
    assert item.state == "reopened"
    assert "Reopened" in page_text(operator.get(f"/incidents/{incident.pk}/"))


def test_an_override_by_two_people_is_seen_in_the_list(people, incident):
    act(people.operator, incident, "mitigate", reason="r")
    act(people.operator, incident, "ask-override", reason="A customer is down.")
    asked = incident.overrides.get()
    assert act(people.operator, incident, "approve", override=asked.pk, reason="n").status_code == 403
    approver = an_operator(incident.deployment, "approver")
    people.stranger.force_login(approver)
    act(people.stranger, incident, "approve", override=asked.pk, reason="The edge holds.")
    assert "Released by override" in page_text(act(people.operator, incident, "release"))
    for path in ("/incidents/", f"/incidents/{incident.pk}/"):
        assert '<span class="warn">override</span>' in page_text(people.viewer.get(path))


def test_uploading_a_result(people, incident):
    restore.record_fix(incident=incident, actor=an_operator(incident.deployment), description="d")
    given = {
        "result-file": SimpleUploadedFile("poc.txt", b"50 rounds, nothing"),
        "result-leaked": "no",
        "result-description": "poc.py",
    }
    page = page_text(act(people.operator, incident, "upload", **given))
    assert incident.external_results.get().evidence_id in page


@pytest.mark.parametrize(
    ("zone", "typed", "utc"),
    [
        ("UTC", "2026-09-09 14:40", datetime(2026, 9, 9, 14, 40, tzinfo=UTC)),
        ("Europe/Berlin", "2026-09-09 14:40", datetime(2026, 9, 9, 12, 40, tzinfo=UTC)),
        ("America/New_York", "2026-01-09 14:40", datetime(2026, 1, 9, 19, 40, tzinfo=UTC)),
        ("Europe/Berlin", "2026-10-25T02:30+01:00", datetime(2026, 10, 25, 1, 30, tzinfo=UTC)),
        ("Europe/Berlin", "2026-10-25T02:30+02:00", datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
    ],
)
def test_times_are_typed_and_shown_in_the_viewers_zone(people, incident, zone, typed, utc):
    type(people.operating_user).objects.update(zone=zone)
    page = page_text(
        act(
            people.operator,
            incident,
            "event",
            **{"event-at": typed, "event-text": "x", "event-confidence": "stated"},
        )
    )
    assert TimelineEvent.objects.get().at == utc
    assert f'title="{utc:%Y-%m-%d %H:%M:%S} UTC"' in page


@pytest.mark.parametrize(
    "typed", ["2026-10-25 02:30", "2026-03-29 02:30", "yesterday", "2099-01-01 00:00", ""]
)
def test_a_time_that_is_twice_or_never_is_asked_again(people, incident, typed):
    type(people.operating_user).objects.update(zone="Europe/Berlin")
    answer = act(
        people.operator,
        incident,
        "event",
        **{"event-at": typed, "event-text": "x", "event-confidence": "stated"},
    )
    assert answer.status_code == 422
    assert "note-error" in page_text(answer)
    assert not TimelineEvent.objects.exists()


def test_an_edit_keeps_the_version_before(people, incident):
    first = {"event-at": "2026-09-09 10:00", "event-text": "Somebody rang.", "event-confidence": "stated"}
    act(people.operator, incident, "event", **first)
    row = TimelineEvent.objects.get()
    page = page_text(
        act(people.operator, incident, "event", **{**first, "event-text": "Greta rang."}, replaces=row.pk)
    )
    assert "Edited: 1 earlier version" in page
    assert "Somebody rang." in page
    again = act(people.operator, incident, "event", **{**first, "event-text": "No."}, replaces=row.pk)
    assert "Somebody has edited" in page_text(again)
    act(people.operator, incident, "withdraw-event", line=TimelineEvent.objects.get(valid_to=None).pk)
    assert "1 withdrawn" in page_text(people.viewer.get(f"/incidents/{incident.pk}/"))


def test_hostile_text_does_nothing(people, incident):
    Incident.objects.update(title=HOSTILE[:200], summary=HOSTILE, opened_by="user:" + HOSTILE[:50])
    operator = people.operating_user
    postmortem.put_event(incident=incident, actor=operator, at=timezone.now(), text=HOSTILE, source=HOSTILE)
    postmortem.add_cause(incident=incident, actor=operator, text=HOSTILE)
    for path in ("", "document/", "document/?public=1"):
        page = page_text(people.viewer.get(f"/incidents/{incident.pk}/{path}"))
        assert "<script>alert" not in page
        assert "<img" not in page
        assert 'href="javascript' not in page
        assert "\u202e" not in page
    assert people.viewer.get("/incidents/").status_code == 200
    assert people.viewer.get(f"/incidents/{incident.pk}/figure/").status_code == 200


@pytest.mark.parametrize("given", [{}, {"act": "nothing"}, {"act": "step"}, {"act": "step", "item": "x"}, {"act": "event"},
                                   {"act": "withdraw-cause", "line": "9" * 30}, {"act": "upload"}, {"act": "action"},
                                   {"act": "approve", "override": "1"}])  # fmt: skip
def test_odd_acts_are_answered_in_words(people, incident, given):
    assert people.operator.post(f"/incidents/{incident.pk}/act/", given).status_code in (400, 404, 422)


def test_reporting_one(people):
    deployment = a_target("chat-small", team=people.team)
    assert people.viewer.get("/incidents/new/").status_code == 403
    given = {"deployment": deployment.slug, "title": "Odd answers", "severity": "high", "quarantine": "on"}
    page = page_text(people.operator.post("/incidents/new/", given, follow=True))
    assert "Odd answers" in page
    assert "under quarantine" in page
    assert people.operator.post("/incidents/new/", {**given, "severity": "awful"}).status_code == 422
    assert people.operator.post("/incidents/new/", {**given, "deployment": "nobody"}).status_code == 422


@pytest.mark.parametrize("kind", ["md", "json", "yaml"])
def test_exports(people, incident, kind):
    whole = people.viewer.get(f"/incidents/{incident.pk}/export/{kind}/")
    public = people.viewer.get(f"/incidents/{incident.pk}/export/{kind}/?public=1")
    assert f'incident-{incident.pk}-public.{kind}"' in public["Content-Disposition"]
    assert b"chat-large" in whole.content
    assert b"chat-large" not in public.content
    assert people.viewer.get(f"/incidents/{incident.pk}/export/exe/").status_code == 404


def test_the_library_answers_from_the_fleet(people, incident):
    page = page_text(people.viewer.get("/library/"))
    assert page.count("primary source not read") == 1
    assert "No: none of 1 would have noticed." in page
    for document in library.shipped_documents():
        inside = page_text(people.viewer.get(f"/library/{document.id}/"))
        assert document.title.replace("'", "’") in inside.replace("&#x27;", "’")
        assert "chat-large" in inside
        assert people.viewer.get(f"/library/{document.id}/export/md/").status_code == 200
    assert "chat-large" not in page_text(people.stranger.get("/library/cloudbleed-2017/"))
    assert people.viewer.get("/library/none/").status_code == 404


def test_importing_an_incident(people, incident):
    text = export.to_yaml(export.document_of(incident)).encode()
    answer = people.operator.post(
        "/library/import/", {"file": SimpleUploadedFile("i.yaml", text)}, follow=True
    )
    assert "is in the library" in page_text(answer)
    bad = people.operator.post(
        "/library/import/", {"file": SimpleUploadedFile("i.yaml", b"a: [")}, follow=True
    )
    assert "no YAML" in page_text(bad)
    assert "Choose a YAML file" in page_text(people.operator.post("/library/import/", {}, follow=True))
    refused = people.viewer.post(
        "/library/import/", {"file": SimpleUploadedFile("i.yaml", text)}, follow=True
    )
    assert "imported by operators" in page_text(refused)


def queries(client, path) -> int:
    with CaptureQueriesContext(connection) as captured:
        assert client.get(path).status_code == 200
    return len(captured)


def test_the_same_number_of_queries_however_many_rows(people, incident):
    def more(number):
        an_incident(a_target(f"more-{number}", team=people.team))
        a_leak(incident.deployment, at=timezone.now() - timedelta(seconds=number))
        opening.consume()
        user = people.operating_user
        postmortem.put_event(incident=incident, actor=user, at=timezone.now(), text="x")
        postmortem.add_cause(incident=incident, actor=user, text="x")
        postmortem.put_impact(
            incident=incident, actor=user, measure="other", certainty="unknown", statement="x"
        )
        postmortem.add_action(
            incident=incident,
            actor=user,
            title="x",
            owner=user,
            due=timezone.now().date(),
            enforced_by=("check:pool", "check:version", "check:canary")[number % 3],
        )

    paths = ("/incidents/", f"/incidents/{incident.pk}/", f"/incidents/{incident.pk}/document/", "/library/")
    more(0)
    before = [queries(people.viewer, path) for path in paths]
    for number in range(1, 5):
        more(number)
    assert [queries(people.viewer, path) for path in paths] == before


def test_a_deployments_page_names_its_incident(people, incident):
    page = page_text(people.viewer.get("/d/chat-large/"))
    assert "Under quarantine." in page
    assert f'href="/incidents/{incident.pk}/"' in page
    Incident.objects.update(state="closed", restored_at=timezone.now(), closed_at=timezone.now())
    assert "Under quarantine" not in page_text(people.viewer.get("/d/chat-large/"))


BROWSER = {"HTTP_ORIGIN": "http://testserver", "HTTP_SEC_FETCH_SITE": "same-origin"}


@pytest.mark.parametrize(
    ("name", "field"), [("ask-override", "reason"), ("upload", "result-description"), ("mitigate", "reason")]
)
def test_where_the_page_has_no_such_form_any_more_the_error_leads_to_what_was_typed(
    people, incident, name, field
):
    """Nothing is to be overridden or proved before the mitigation, and a second mitigation has no form."""
    if name == "mitigate":
        act(people.operator, incident, "mitigate", reason="The edge refuses them.")
    given = (
        {"result-leaked": "no", "result-file": SimpleUploadedFile("a.txt", b"out")}
        if name == "upload"
        else {}
    )
    answer = act(people.operator, incident, name, **{field: "Typed in the night. " * 300}, **given)
    page = page_text(answer)
    assert answer.status_code == 422
    assert "Typed in the night. Typed" in page
    links = re.findall(r'href="#([^"]+)"', page[page.index('id="problems"') : page.index('id="kept"')])
    assert links
    assert all(f'id="{link}"' in page for link in links)


def test_a_form_that_is_gone_has_no_links_to_its_fields_and_keeps_text_beside_a_large_file(people, incident):
    empty = page_text(act(people.operator, incident, "ask-override", reason=""))
    problems = empty[empty.index('id="problems"') : empty.index("</div>", empty.index('id="problems"'))]
    assert "This field is required" in problems
    assert "href" not in problems
    given = {
        "result-leaked": "no",
        "result-description": "The long script.",
        "result-file": SimpleUploadedFile("a", b"a" * 5_000_001),
    }
    assert "The long script." in page_text(act(people.operator, incident, "upload", **given))


def test_who_may_not_any_more_gets_back_what_they_typed(people, incident):
    answer = people.viewer.post(
        f"/incidents/{incident.pk}/act/", {"act": "cause", "cause-text": "A pool of 5,328."}, **BROWSER
    )
    assert answer.status_code == 403
    assert "A pool of 5,328." in page_text(answer)
    gone = people.operator.post(
        f"/incidents/{incident.pk}/act/",
        {"act": "event", "replaces": "99999", "event-text": "It began at ten."},
        **BROWSER,
    )
    assert gone.status_code == 404
    assert "It began at ten." in page_text(gone)


def test_what_another_site_sent_is_not_repeated(people, incident):
    for path in (f"/incidents/{incident.pk}/act/", "/nowhere/"):
        sent = people.viewer.post(
            path, {"act": "cause", "cause-text": "Sent by others."}, HTTP_ORIGIN="http://evil.example"
        )
        assert "Sent by others." not in page_text(sent)


def now_part(client, incident):
    """The part with the stepper, and its one primary button."""
    page = page_text(client.get(f"/incidents/{incident.pk}/"))
    part = page.partition('id="state"')[2].partition("</section>")[0]
    return part, re.findall(r'class="button(?: button)?-main"[^>]*>([^<]+)<', part)


def test_every_stage_has_one_primary_button_and_release_says_why_not(people, incident):
    operator, deployment = people.operator, incident.deployment
    assert now_part(operator, incident)[1] == ["Mark as mitigated"]
    assert now_part(people.viewer, incident)[1] == []
    act(operator, incident, "mitigate", reason="Edge limit of 600,000 set.")
    assert now_part(operator, incident)[1] == ["Record the fix"]
    runs_version(deployment, "0.5.22")
    act(operator, incident, "fix", **{"fix-description": "Upgraded to 0.5.22, pool raised."})
    part, buttons = now_part(operator, incident)
    assert buttons == ["Run the reproduction"]
    assert "1 of 5 conditions are met" in part
    page = page_text(operator.get(f"/incidents/{incident.pk}/"))
    assert re.search(r'<button type="button" disabled[^>]*>Release to traffic</button>', page)
    assert "Disabled: 4 of 5 conditions are not met." in page
    gate = page.partition('id="gate"')[2].partition("</ul>")[0]
    assert gate.count(">Run<span") == 4, "one for each condition that is left"
    act(operator, incident, "replay")
    a_finished(
        deployment, "rejection", run=incident.replays.get().run, measures=measures(refused=[681_274, 681_275])
    )
    assert now_part(operator, incident)[1] == ["Run: Internal canary and boundary set"]
    the_internal_set(deployment)
    assert now_part(operator, incident)[1] == ["Release to traffic"]
    assert "disabled" not in page_text(operator.get(f"/incidents/{incident.pk}/")).partition("<main")[2]
    act(operator, incident, "release")
    part, buttons = now_part(operator, incident)
    assert buttons == ["Write the postmortem"]
    assert re.search(r"Before closing: \d+ left", part)


def test_an_incident_whose_deployment_takes_traffic_offers_the_quarantine_first(people, incident):
    Quarantine.objects.update(valid_to=timezone.now())
    assert now_part(people.operator, incident)[1] == ["Quarantine the deployment"]


@pytest.mark.parametrize(
    ("key", "checks"), [("internal", ["rejection", "canary"]), ("pool", ["pool"]), ("version", ["version"])]
)
def test_a_condition_is_run_from_where_it_stands(people, incident, key, checks):
    act(people.operator, incident, "fix", **{"fix-description": "Upgraded."})
    page = page_text(act(people.operator, incident, "run", key=key))
    run = incident.deployment.runs.order_by("pk").last()
    assert f"is queued as run {run.pk}" in page
    assert sorted(run.checks) == sorted(checks)
    count = incident.deployment.runs.count()
    assert "met by no check" in page_text(act(people.operator, incident, "run", key="fix"))
    assert act(people.viewer, incident, "run", key=key).status_code == 403
    assert incident.deployment.runs.count() == count
