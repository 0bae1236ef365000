"""Lanes, bars and marks of the timeline: what they stand for, in which order, and where they lead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from kvaudit.server.audits.models import CheckState, Overdue, StateChange
from kvaudit.server.fleet.models import Pause
from kvaudit.server.web.kit import figure as frame
from kvaudit.server.web.kit.parts.timeline import events
from kvaudit.server.web.kit.parts.timeline import figure as timeline
from kvaudit.server.web.kit.parts.timeline.events import Mark, Span
from tests.factories import a_deployment, a_node, a_team, a_user
from tests.server.web import builders
from tests.server.web.deployment import figure_history

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def built(marks=(), spans=()):
    return timeline.build(marks, spans, [], NOW - 100 * HOUR, NOW)


def trace(data, name, mode):
    found = [item for item in data if item["name"] == name and item["mode"] == mode]
    assert len(found) == 1, [(item["name"], item["mode"]) for item in data]
    return found[0]


def test_checks_stand_in_their_usual_order_above_the_other_lanes():
    lanes = timeline.lanes_of(
        ["version change", "canary", "of another release", "pool", "incidents", "version"]
    )
    assert lanes == ["pool", "version", "canary", "of another release", "version change", "incidents"]


def test_a_mark_lies_in_its_lane_at_its_moment_and_leads_to_its_run():
    data, shown = built([Mark(NOW - HOUR, "pool", "fail", "too <small>", "/runs/7/", "pass")],
                        [Span("version", NOW - 2 * HOUR, None, "pass")])  # fmt: skip
    mark = trace(data, "fail", "markers")
    assert mark["x"] == [frame.local(NOW - HOUR)]
    assert mark["customdata"] == ["/runs/7/"]
    assert mark["hovertext"][0].startswith("pool: fail (was pass)<br>")
    assert "too &lt;small&gt;" in mark["hovertext"][0]
    lane = dict(zip(shown["yaxis2"]["tickvals"], shown["yaxis2"]["ticktext"], strict=True))
    assert lane[mark["y"][0]] == "pool"


def test_bars_are_broken_between_spans_and_open_ones_end_now():
    spans = [Span("pool", NOW - 9 * HOUR, NOW - 8 * HOUR, "pass"), Span("pool", NOW - 2 * HOUR, None, "pass")]
    bar = trace(built([], spans)[0], "pass", "lines")
    assert bar["x"] == [frame.local(NOW - 9 * HOUR), frame.local(NOW - 8 * HOUR), None,
                        frame.local(NOW - 2 * HOUR), frame.local(NOW), None]  # fmt: skip
    assert bar["hoverinfo"] == "skip"  # the marks at their beginnings speak and are clicked


def test_what_ended_before_the_drawing_begins_is_left_out():
    old = Span("pool", NOW - 300 * HOUR, NOW - 200 * HOUR, "pass")
    cut = Span("pool", NOW - 150 * HOUR, NOW - 50 * HOUR, "pass")
    bar = trace(built([], [old, cut])[0], "pass", "lines")
    assert bar["x"] == [frame.local(NOW - 100 * HOUR), frame.local(NOW - 50 * HOUR), None]


def test_many_bars_are_one_filled_path():
    spans = [Span("pool", NOW - HOUR, NOW, "pass")] * (timeline.LINES + 1)
    bar = trace(built([], spans)[0], "pass", "none")
    assert bar["fill"] == "toself"
    assert len(bar["x"]) == 5 * len(spans)


def test_a_fail_is_drawn_over_everything_else():
    kinds = ["fail", "pass", "expired", "error", "inconclusive", "of another release"]
    data, _ = built([Mark(NOW, "pool", kind, "") for kind in kinds])
    assert [item["name"] for item in data][-3:] == ["inconclusive", "error", "fail"]


def test_every_kind_of_verdict_has_a_shape_of_its_own():
    shapes = [timeline.SYMBOLS[verdict][0] for verdict in ("pass", "fail", "inconclusive", "error")]
    assert len(set(shapes)) == 4


def test_nothing_at_all_is_drawn_as_nothing():
    data, shown = built()
    assert data == []
    assert shown["height"] > 0


@pytest.fixture
def deployment(db):
    return a_deployment("chat", team=a_team())


def the_spans(deployment, now=None):
    return events.spans_of(deployment, now or timezone.now())


def a_state(deployment, run, **fields):
    stored = {"check_id": "pool", "verdict": "pass", "run": run, "result": run.results.get(), **fields}
    stored.setdefault("last_confirmed", stored["since"])
    return CheckState.objects.create(deployment=deployment, **stored)


def test_an_interval_ends_where_its_evidence_expired_and_nothing_is_known_after(deployment):
    now = timezone.now()
    run = builders.a_run(deployment, {"pool": "pass"})
    a_state(deployment, run, since=now - 9 * HOUR, expires_at=now - 4 * HOUR, expired_by="capacity change")
    spans = the_spans(deployment, now)
    assert [(span.kind, span.start, span.end) for span in spans] == [
        ("pass", now - 9 * HOUR, now - 4 * HOUR),
        (events.EXPIRED, now - 4 * HOUR, None),
    ]
    assert "capacity change" in spans[1].text


def test_an_interval_that_holds_is_open_and_a_closed_one_is_not(deployment):
    now = timezone.now()
    run = builders.a_run(deployment, {"pool": "pass"})
    a_state(deployment, run, since=now - 9 * HOUR, expires_at=now + HOUR, closed_at=now - 5 * HOUR)
    a_state(deployment, run, since=now - 5 * HOUR, expires_at=now + HOUR, verdict="fail")
    spans = the_spans(deployment, now)
    assert [(span.kind, span.end) for span in spans] == [("fail", None), ("pass", now - 5 * HOUR)]


def test_a_change_of_version_and_pool_marks_both_lanes(deployment):
    node = a_node(deployment, "prefill-0")
    builders.a_change(node)
    builders.a_change(node, significant=False, diff=[{"name": "pool", "before": 1, "after": 2}])
    marks = events.marks_of(deployment)
    assert sorted((mark.lane, mark.kind) for mark in marks) == [
        (events.CAPACITY, events.CAPACITY),
        (events.CAPACITY, events.SMALL),
        (events.VERSION, events.VERSION),
    ]


def test_overdue_and_pauses_have_lanes(deployment):
    now = timezone.now()
    plan = builders.a_plan(deployment, name="nightly")
    Overdue.objects.create(plan=plan, deployment=deployment, since=now - HOUR)
    StateChange.objects.create(
        at=now - HOUR, deployment=deployment, plan=plan, what="overdue", summary="late"
    )
    assert [(span.lane, span.kind) for span in the_spans(deployment, now)] == [(events.SCHEDULE, "overdue")]
    (mark,) = events.marks_of(deployment)
    assert (mark.lane, mark.kind, mark.text, mark.href) == (events.SCHEDULE, "overdue", "nightly: late", "")


def test_a_change_of_verdict_leads_to_what_its_run_says_of_the_check(deployment):
    run = builders.a_run(deployment, {"pool": "pass"})
    for check in ("pool", "<b>", "pool#x"):
        StateChange.objects.create(
            at=NOW, deployment=deployment, run=run, what="verdict", check_id=check, after="pass", summary="s"
        )
    assert sorted(mark.href for mark in events.marks_of(deployment)) == [
        f"/runs/{run.pk}/", f"/runs/{run.pk}/", f"/runs/{run.pk}/#check-pool",
    ]  # fmt: skip
    links = {row[4] for row in timeline.figure_of(deployment).twin.rows}
    assert f'<a href="/runs/{run.pk}/#check-pool">run {run.pk}</a>' in links


def test_what_expires_or_is_late_by_itself_has_marks_where_it_begins_and_ends(deployment):
    run = builders.a_run(deployment, {"pool": "pass"})
    a_state(deployment, run, since=NOW - 9 * HOUR, expires_at=NOW - 4 * HOUR, expired_by="capacity change")
    a_state(deployment, run, check_id="version", since=NOW - 9 * HOUR, expires_at=NOW - 3 * HOUR,
            closed_at=NOW - 2 * HOUR)  # fmt: skip
    a_state(deployment, run, check_id="drift", since=NOW - 9 * HOUR, expires_at=NOW + HOUR)
    StateChange.objects.create(  # the same said by beat: one mark, not two
        at=NOW - 3 * HOUR, deployment=deployment, what="expired", check_id="version", summary="not confirmed"
    )
    plan = builders.a_plan(deployment, name="nightly")
    Overdue.objects.create(plan=plan, deployment=deployment, since=NOW - 8 * HOUR, until=NOW - 7 * HOUR)
    marks = events.marks_of(deployment, spans=events.gaps_of(deployment, NOW, limit=9))
    assert [(mark.lane, mark.kind, (NOW - mark.at) // HOUR) for mark in marks] == [
        ("version", "expired", 3), ("pool", "expired", 4), ("schedule", "ended", 7), ("schedule", "overdue", 8),
    ]  # fmt: skip
    assert marks[0].text == "not confirmed"
    assert "capacity change" in marks[1].text
    early = events.gaps_of(deployment, NOW, before=NOW - 3 * HOUR, limit=1)
    assert [span.lane for span in early] == ["pool", "schedule"]


def test_a_pause_has_marks_that_say_who_and_why(deployment):
    Pause.objects.create(paused_by="Ada", reason="load test", valid_from=NOW - 2 * HOUR, valid_to=NOW - HOUR)
    begun, ended = timeline.figure_of(deployment).twin.rows[::-1]
    assert (begun[1], begun[2], begun[3]) == (
        events.PAUSED, events.PAUSED, "by Ada for the whole fleet: load test",
    )  # fmt: skip
    assert ended[2] == events.ENDED


def test_marks_are_newest_first_and_cut_by_moment(deployment):
    now = timezone.now()
    for hours in (3, 1, 2):
        StateChange.objects.create(
            at=now - hours * HOUR,
            deployment=deployment,
            what="verdict",
            check_id="pool",
            after="pass",
            summary="s",
        )
    assert [mark.at for mark in events.marks_of(deployment)] == [now - n * HOUR for n in (1, 2, 3)]
    assert [mark.at for mark in events.marks_of(deployment, before=now - HOUR)] == [
        now - n * HOUR for n in (2, 3)
    ]
    assert [mark.at for mark in events.marks_of(deployment, limit=1)] == [now - HOUR]


def test_marks_of_others_do_not_show(deployment):
    other = a_deployment("other", team=deployment.team)
    StateChange.objects.create(
        at=timezone.now(), deployment=other, what="verdict", check_id="pool", after="pass", summary="s"
    )
    assert events.marks_of(deployment) == []


def test_a_year_is_drawn_with_a_fixed_number_of_queries(deployment, django_assert_num_queries):
    past = figure_history.a_past("chat-past", team=deployment.team, changes=30)
    with django_assert_num_queries(8):
        timeline.draw(past)
    longer = figure_history.a_past("chat-longer", team=deployment.team, changes=200)
    with django_assert_num_queries(8):
        data, shown = timeline.draw(longer)
    marked = sum(len(item["x"]) for item in data if item["mode"] == "markers")
    assert marked == 200 + 3 + 2  # verdicts, capacity and version, a pause and its end
    assert shown["xaxis"]["range"][0] > frame.local(timezone.now() - events.LONGEST_BACK - 10 * 24 * HOUR)


def test_the_page_shows_the_newest_rows_and_leads_to_all(deployment):
    past = figure_history.a_past("chat-past", team=deployment.team, changes=100)
    figure = timeline.figure_of(past)
    assert len(figure.twin.rows) == timeline.ROWS
    assert figure.twin.more == reverse("deployment-events", args=["chat-past"])
    assert timeline.figure_of(deployment).empty


def test_waivers_and_incidents_are_spans_and_marks(deployment):
    from kvaudit.server.checklists.models import Waiver
    from kvaudit.server.incidents.models import Incident

    now = timezone.now()
    incident = Incident.objects.create(
        deployment=deployment, kind="other", title="<b>leak</b>", severity="critical", opened_at=now - 5 * HOUR,
        opened_by="Ada", state="restored", restored_at=now - HOUR,
    )  # fmt: skip
    Waiver.objects.create(
        team=deployment.team, item="2", reason="until the upgrade", requester=a_user(), expires_at=now + HOUR,
        decision="approved", decided_by=a_user(), decided_at=now - 3 * HOUR, valid_from=now - 3 * HOUR,
    )  # fmt: skip
    data, _ = timeline.draw(deployment, now)
    assert trace(data, events.INCIDENTS, "lines")["x"][:2] == [
        frame.local(now - 5 * HOUR),
        frame.local(now - HOUR),
    ]
    assert trace(data, events.WAIVERS, "lines")["x"][:2] == [frame.local(now - 3 * HOUR), frame.local(now)]
    assert "for the whole team: until the upgrade" in trace(data, events.WAIVERS, "markers")["hovertext"][0]
    assert "&lt;b&gt;leak" in trace(data, events.INCIDENTS, "markers")["hovertext"][0]
    rows = timeline.figure_of(deployment).twin.rows
    assert [(row[1], row[2]) for row in rows] == [
        ("incidents", "ended"),
        ("waivers", "waivers"),
        ("incidents", "incidents"),
    ]
    assert str(incident.pk) in str(rows[2][3])
