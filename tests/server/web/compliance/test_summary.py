"""The week for managers: what changed, what ends, what is overdue, who owns it; as a page and as Markdown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from kvaudit.server.audits.models import CheckState, Overdue, StateChange
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.incidents.models import ActionItem, Incident, Transition
from kvaudit.server.web.compliance.summary.markdown import md
from kvaudit.server.web.compliance.summary.page import week_of
from tests.factories import a_user
from tests.server.checklists.claims import EVERYTHING, a_waiver, an_attestation
from tests.server.incidents.builders import an_incident
from tests.server.web import builders


def text(client, path="/summary/"):
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.fixture
def told(people):
    """One deployment that got worse, one that got better, one that was covered; each with an owner."""
    now = timezone.now()
    old, this = now - timedelta(days=30), now - timedelta(microseconds=5)
    for slug, before, after in (
        ("worse", "pass", "fail"),
        ("better", "fail", "pass"),
        ("covered", "fail", "fail"),
    ):
        each = builders.a_pair(slug, team=people.team)
        Deployment.objects.filter(pk=each.pk).update(
            created_at=old, owner=f"owner-of-{slug}", contact=f"#{slug}"
        )
        run = builders.a_state(each, {**dict.fromkeys(EVERYTHING, "pass"), "pool": after}, since=old)
        state = CheckState.objects.get(deployment=each, check_id="pool")
        if before != after:
            CheckState.objects.filter(pk=state.pk).update(since=this, last_confirmed=this)
            CheckState.objects.create(
                deployment=each, check_id="pool", verdict=before, since=old, last_confirmed=old, closed_at=this,
                expires_at=now + timedelta(days=7), run=run, result=state.result,
            )  # fmt: skip
        if slug == "covered":
            a_waiver(each, "1", valid_from=this, expires_at=now + timedelta(days=5))
    return people


def sections(markdown):
    found, name = {}, ""
    for line in markdown.splitlines():
        if line.startswith("## "):
            name = line[3:]
        found.setdefault(name, []).append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def test_changes_are_sorted_by_what_they_mean(told):
    said = sections(text(told.viewer, "/summary/markdown/"))
    assert "[worse](" in said["New or worse"]
    assert "pass → **fail** (failing: pool). Owner: owner\\-of\\-worse." in said["New or worse"]
    assert "[better](" in said["Got better"]
    assert "fail → **pass**" in said["Got better"]
    assert "[covered](" in said["Covered by a waiver or an attestation"]
    assert "covered" not in said["Got better"], "leave is not improvement"
    page = text(told.viewer)
    for slug in ("worse", "better", "covered"):
        assert f'href="/d/{slug}/items/1/"' in page


def test_what_ends_what_is_overdue_and_who_owns_it(told):
    deployment = Deployment.objects.get(slug="worse")
    since = timezone.now() - timedelta(hours=4)
    Overdue.objects.create(plan=builders.a_plan(deployment), deployment=deployment, since=since)
    an_attestation(deployment, "D", expires_at=timezone.now() + timedelta(days=3))
    said = sections(text(told.viewer, "/summary/markdown/"))
    assert "waiver of item 1, covered, owner owner\\-of\\-covered" in said["Ends soon"]
    assert "attestation of item D, worse" in said["Ends soon"]
    assert "no plan renews it" in said["Ends soon"]
    assert "worse: plan hourly since" in said["Overdue"]
    assert "| owner\\-of\\-worse | \\#worse | 1 | 0 | 0 | 1 | 2 | 0 |" in said["Who has something to do"]
    CheckState.objects.update(interval=3_600)
    assert "no plan renews it" not in text(told.viewer, "/summary/markdown/")


def ends(person):
    return sections(text(person.viewer, "/summary/markdown/"))["Ends soon"]


def test_a_plan_that_runs_in_time_renews_what_was_run_by_hand(told):
    deployment = Deployment.objects.get(slug="worse")
    team, soon = deployment.team, timezone.now() + timedelta(hours=1)
    assert ends(told).count("canary") == 3
    late = builders.a_plan(deployment, checks=["canary"], next_due=timezone.now() + timedelta(days=60))
    off = builders.a_plan(deployment, checks=["canary"], next_due=soon, enabled=False)
    assert ends(told).count("canary") == 3  # one is too late, one is switched off
    late.delete(), off.delete()
    builders.a_plan(deployment, checks=["canary"], next_due=soon)
    assert ends(told).count("canary") == 2
    builders.a_plan(name="the team's", checks=list(EVERYTHING), team=team, next_due=soon)
    assert "no plan renews it" not in ends(told)


def test_incidents_and_their_action_items(told):
    now = timezone.now()
    worse = Deployment.objects.get(slug="worse")
    fresh, past = an_incident(worse), an_incident(Deployment.objects.get(slug="better"))
    long_ago = now - timedelta(days=40)
    Incident.objects.filter(pk=past.pk).update(
        state="closed", opened_at=long_ago, restored_at=long_ago, closed_at=long_ago
    )
    Transition.objects.filter(incident=past).update(at=long_ago)
    ada = a_user("ada", team=worse.team)
    due = timezone.localtime(now).date()
    for title, days, state in (("Pin it", -1, "open"), ("Soak | it", 5, "reopened"), ("Old", -9, "done")):
        ActionItem.objects.create(
            incident=fresh, title=title, owner=ada, due=due + timedelta(days=days), state=state
        )
    said = sections(text(told.viewer, "/summary/markdown/"))
    assert f"[{fresh.pk}: " in said["Incidents"]
    assert ", critical, open, opened " in said["Incidents"]
    assert f"[{past.pk}: " not in said["Incidents"]
    assert "- Pin it ([incident" in said["Action items to do"]
    assert said["Action items to do"].count("**overdue**") == 1
    assert "Soak \\| it" in said["Action items to do"]
    assert "Old" not in said["Action items to do"]
    assert "| ada |  | 0 | 0 | 0 | 0 | 0 | 2 |" in said["Who has something to do"]
    page = text(told.viewer)
    assert f'href="/incidents/{fresh.pk}/#actions"' in page
    assert "Pin it" not in text(told.stranger)


def test_what_is_new_and_covered_by_a_word_is_told(told):
    new = builders.a_pair("newcomer", team=told.team)
    builders.a_state(new, {**dict.fromkeys(EVERYTHING, "pass"), "pool": "fail"})
    a_waiver(new, "1", valid_from=timezone.now() - timedelta(minutes=1))
    said = sections(text(told.viewer, "/summary/markdown/"))
    assert "[newcomer](" in said["Covered by a waiver or an attestation"]
    assert "newcomer" not in said["New or worse"]


def test_capacity_changes_of_the_week_and_of_no_other(told):
    deployment = Deployment.objects.get(slug="worse")
    now = timezone.now()
    for at, summary in ((now - timedelta(days=20), "long ago"), (now, "pool moved by | 50 %")):
        StateChange.objects.create(at=at, deployment=deployment, what="capacity", summary=summary)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timezone, "now", lambda: now + timedelta(seconds=1))
        said = text(told.viewer, "/summary/markdown/")
        week = week_of("", timezone.now())
        past = week_of("x", now - timedelta(days=20)).name
        assert "long ago" in text(told.viewer, f"/summary/markdown/?week={past}")
    assert "pool moved by \\| 50 %" in said
    assert "long ago" not in said
    assert week.after == ""


@pytest.mark.parametrize("query", ["week=2026-W01", "week=9999-W53", "week=2000-W60", "week=x", "week=%00", "week=2999-W10",
                                   "week=0001-W01"])  # fmt: skip
def test_any_week_is_answered(told, query):
    for path in ("/summary/", "/summary/markdown/"):
        assert text(told.viewer, f"{path}?{query}")


def test_strangers_read_nothing(told):
    for path in ("/summary/", "/summary/markdown/"):
        said = text(told.stranger, path)
        assert not any(word in said for word in ("worse/", "/d/covered", "owner-of", "owner\\-of"))


def test_foreign_words_format_nothing():
    hostile = "# x\n| a | `b` <script>[l](javascript:1) **b** \u202e @all &amp;\x00"
    said = md(hostile)
    assert "\n" not in said
    for sign in ("\\#", "\\|", "\\`", "\\<script\\>", "\\[l\\]\\(", "\\*\\*", "\\@all", "U\\+202E"):
        assert sign in said


def test_weeks_begin_on_monday_in_the_viewers_zone_across_a_change_of_clocks():
    now = datetime(2026, 10, 28, 12, tzinfo=UTC)
    with timezone.override("Europe/Berlin"):
        week = week_of("2026-W43", now)
    assert (week.end.astimezone(UTC) - week.start.astimezone(UTC)) == timedelta(days=7, hours=1)
    assert (week.before, week.after) == ("2026-W42", "2026-W44")
    assert week_of("2027-W01", now).name == "2026-W44"
