"""The table of every figure says what is drawn: no more, no less."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from kvaudit.audits.models import CheckState, Overdue, StateChange
from kvaudit.audits.windows import spans
from kvaudit.checklists.models import Waiver
from kvaudit.incidents.models import Incident, Quarantine, TimelineEvent
from kvaudit.web import windows
from kvaudit.web.figures import hours, incident, timeline
from tests.factories import a_deployment, a_team, a_user
from tests.web import scene
from tests.web.figures import history, twins

HOUR = timedelta(hours=1)
NIGHT = {"days": [], "from": "01:00", "to": "05:00", "zone": "Europe/Berlin"}
WEEKEND = {"days": ["sat", "sun"], "from": "10:00", "to": "18:00", "zone": "UTC"}
pytestmark = pytest.mark.django_db


@pytest.fixture
def past():
    """A year with every sort of mark, bar and band: 14 changes, so that the page's table holds all of them."""
    past = history.a_past("chat-past", team=a_team(), changes=14, windows=[WEEKEND])
    now = timezone.now()
    run = scene.a_run(past, {"canary": "pass"})
    stood = {"deployment": past, "check_id": "session", "run": run, "result": run.results.get()}
    CheckState.objects.create(
        **stored(since=now - 9 * HOUR, expires_at=now - 8 * HOUR, closed_at=now - 7 * HOUR), **stood
    )
    CheckState.objects.create(**stored(since=now - 7 * HOUR, expires_at=now + HOUR), **stood)
    for hours_ago in (9, 7):
        changed(past, "session", "pass", now - hours_ago * HOUR, run)
    scene.a_plan(past, name="nightly", windows=[NIGHT])
    scene.a_plan(past, name="also nightly", windows=[NIGHT])
    scene.a_plan(past, name="off", windows=[WEEKEND], enabled=False)
    plan = scene.a_plan(past, name="any time")
    Overdue.objects.create(plan=plan, deployment=past, since=now - 6 * HOUR, until=now - 5 * HOUR)
    Incident.objects.create(
        deployment=past, kind="other", title="leak", severity="critical", opened_at=now - 4 * HOUR, opened_by="Ada"
    )  # fmt: skip
    Waiver.objects.create(
        team=past.team, item="2", reason="until the upgrade", requester=a_user(), expires_at=now + HOUR,
        decision="approved", decided_by=a_user(), decided_at=now - 3 * HOUR, valid_from=now - 3 * HOUR,
    )  # fmt: skip
    return past


def stored(**when):
    return {"verdict": "pass", "last_confirmed": when["since"], "expired_by": "capacity change", **when}


def changed(deployment, check, after, at, run):
    StateChange.objects.create(
        at=at, deployment=deployment, run=run, what="verdict", check_id=check, after=after, summary="s"
    )


def the_rows(rows):
    """Rows of marks, and rows of bands."""
    return [row for row in rows if row[1] != hours.LANE], [row for row in rows if row[1] == hours.LANE]


def same_marks(data, layout, rows):
    """Every mark is a row and every row a mark; every bar begins, and unless it lasts ends, at a row of its lane."""
    assert rows
    said = {(twins.at(row[0]), row[1]) for row in rows}
    drawn = twins.marks(data, layout)
    assert sum(drawn.values()) == len(rows)
    assert set(drawn) == {(twins.at(row[0]), row[1], twins.href(row[4])) for row in rows}
    lasting = twins.whole(layout["xaxis"]["range"][1]) - 60_000
    bars = list(twins.bars(data, layout))
    begun = {(lane, begin) for lane, _, begin, _ in bars}
    for lane, kind, begin, end in bars:
        assert (begin, lane) in said, (lane, kind, twins.moment(begin))
        ends = (end, lane) in said or (lane, end) in begun or end >= lasting or _is_now(end)
        assert ends, (lane, kind, twins.moment(end))
    return bars


def _is_now(end):
    return abs(twins.moment(end) - timezone.now()) < timedelta(minutes=2)


def test_the_timeline(past):
    data, layout = twins.drawn(timeline.draw(past))
    rows, of_bands = the_rows(timeline.figure_of(past).twin.rows)
    assert len(rows) < timeline.ROWS
    bars = same_marks(data, layout, rows)
    assert {kind for _, kind, _, _ in bars} >= {"pass", "fail", "expired", "overdue", "waivers", "incidents",
                                                "probes paused"}  # fmt: skip

    bands = [trace for trace in data if trace["mode"] == "none"]
    assert [trace["name"] for trace in bands] == [f"{row[3]}, as declared now" for row in of_bands]
    assert [row[3] for row in of_bands] == ["hours of active audits", "hours of plans also nightly, nightly"]
    for trace, row in zip(bands, of_bands, strict=True):
        found = [(twins.moment(piece[0][0]), twins.moment(piece[2][0])) for piece in twins.pieces(trace)]
        assert len(found) > 50
        declared = windows.parse(str(row[0]).replace("; ", "\n"))
        assert found == [_milli(span) for span in spans(declared, found[0][0], found[-1][1])]


def _milli(span):
    return tuple(twins.moment(round(each.timestamp() * 1000)) for each in span)


def test_the_whole_table_of_the_timeline(past, client):
    client.force_login(a_user(team=past.team))
    answer = client.get(reverse("deployment-events", args=[past.slug]))
    same_marks(*twins.drawn(timeline.draw(past)), answer.context["rows"])
    text = answer.content.decode()
    assert "sat,sun 10:00-18:00 UTC" in text
    assert "01:00-05:00 Europe/Berlin" in text
    assert ">nightly</bdi>" in text
    assert ">off</bdi>" not in text


def test_the_timeline_of_an_incident():
    deployment = a_deployment("chat", team=a_team())
    now = timezone.now()
    found = Incident.objects.create(
        deployment=deployment, kind="other", title="leak", severity="critical", opened_at=now - 4 * HOUR,
        opened_by="Ada", window_from=now - 9 * HOUR, window_to=now - 5 * HOUR,
    )  # fmt: skip
    changed(deployment, "pool", "fail", now - 5 * HOUR, scene.a_run(deployment, {"pool": "fail"}))
    TimelineEvent.objects.create(
        incident=found, at=now - 3 * HOUR, text="saw it", author="Ada", confidence="seen"
    )
    Quarantine.objects.create(
        incident=found, deployment=deployment, set_by="Ada", valid_from=now - 2 * HOUR, valid_to=now - HOUR,
        reason="leaks",
    )  # fmt: skip
    data, layout = twins.drawn(incident.draw(found))
    bars = same_marks(data, layout, incident.figure_of(found).twin.rows)
    assert {lane for lane, *_ in bars} == {incident.WINDOW, incident.QUARANTINE}
