"""The table of every figure says what is drawn: no more, no less."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import pairwise

import pytest
from django.urls import reverse
from django.utils import timezone

from kvaudit.server.audits.models import CheckState, Overdue, StateChange
from kvaudit.server.audits.schedule.windows import spans
from kvaudit.server.checklists.models import DailyCount, Waiver
from kvaudit.server.incidents.models import Incident, Quarantine, TimelineEvent
from kvaudit.server.web.compliance import figure as compliance
from kvaudit.server.web.deployment.figures import capacity, prefill
from kvaudit.server.web.incidents import figure as incident
from kvaudit.server.web.kit.parts import windows
from kvaudit.server.web.kit.parts.timeline import figure as timeline
from kvaudit.server.web.kit.parts.timeline import hours
from tests.factories import a_deployment, a_node, a_team, a_user
from tests.server.inquiries.request_logs.test_importer import brought
from tests.server.inquiries.request_logs.test_production import ODD
from tests.server.web import builders
from tests.server.web.deployment import figure_history
from tests.server.web.deployment import figure_twins as twins
from tests.server.web.pages import page_text

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NIGHT = {"days": [], "from": "01:00", "to": "05:00", "zone": "Europe/Berlin"}
WEEKEND = {"days": ["sat", "sun"], "from": "10:00", "to": "18:00", "zone": "UTC"}
pytestmark = pytest.mark.django_db


@pytest.fixture
def past():
    """A year with every sort of mark, bar and band: 14 changes, so that the page's table holds all of them."""
    past = figure_history.a_past("chat-past", team=a_team(), changes=14, windows=[WEEKEND])
    now = timezone.now()
    run = builders.a_run(past, {"canary": "pass"})
    stood = {"deployment": past, "check_id": "session", "run": run, "result": run.results.get()}
    CheckState.objects.create(
        **stored(since=now - 9 * HOUR, expires_at=now - 8 * HOUR, closed_at=now - 7 * HOUR), **stood
    )
    CheckState.objects.create(**stored(since=now - 7 * HOUR, expires_at=now + HOUR), **stood)
    for hours_ago in (9, 7):
        changed(past, "session", "pass", now - hours_ago * HOUR, run)
    builders.a_plan(past, name="nightly", windows=[NIGHT])
    builders.a_plan(past, name="also nightly", windows=[NIGHT])
    builders.a_plan(past, name="off", windows=[WEEKEND], enabled=False)
    plan = builders.a_plan(past, name="any time")
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
    text = page_text(answer)
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
    changed(deployment, "pool", "fail", now - 5 * HOUR, builders.a_run(deployment, {"pool": "fail"}))
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
    assert layout["yaxis2"]["ticktext"] == ["people", "exposure window", "quarantine", "verdict"]


def test_capacity():
    past = figure_history.a_past("chat-past", team=a_team(), changes=3)
    now = timezone.now()
    node = a_node(past, "decode-0", role="decode")
    for since, until, pool in ((50, 40, 700_000), (39, 20, None), (19, 0, 1_400_000)):
        figure_history.a_snapshot(node, now - since * DAY, now - until * DAY, pool, "1", current=not until)
    data, _ = twins.drawn(capacity.draw(past, now))
    rows = capacity.figure_of(past).twin.rows
    together = [row for row in rows if row[2] == "all nodes: the smallest"]
    named = twins.by_name(data)
    zone = "danger zone: accepted, longer than the pool"
    must = "context × 1.25, what the pool must hold"
    for name, column in (("smallest pool", 3), ("context", 4), (must, 5)):
        assert levels(named.pop(name)) == joined([(*ends(row), row[column]) for row in together]), name
    assert [(twins.whole(piece[0][0]), f"{piece[0][1]:,} to {piece[1][1]:,}") for piece in twins.pieces(named.pop(zone))] == [
        (twins.at(row[0]), row[6]) for row in reversed(together) if row[6] not in ("none", None)
    ]  # fmt: skip
    for name, start in (("prefill-0", "prefill-0"), ("decode-0", "decode-0")):
        trace = named.pop(f"pool of {name} ({name[:-2]})")
        assert levels(trace) == joined(
            [(*ends(row), row[3]) for row in rows if str(row[2]).startswith(f"{start}, ")]
        )
    changes = named.pop("capacity change")
    said = [row for row in reversed(rows) if str(row[2]).startswith("capacity change")]
    assert [twins.whole(x) for x in changes["x"]] == [twins.at(row[0]) for row in said]
    assert changes["customdata"] == [twins.href(row[7]) for row in said]
    assert [row[3] for row in said] == [681_280, None]  # the last known height, and that it is not known
    assert changes["y"] == [681_280, 681_280]
    assert [("unknown" in text) for text in changes["hovertext"]] == [False, True]
    assert named == {}


def ends(row):
    return twins.at(row[0]), twins.at(row[1])


def levels(trace):
    """(begin, end, value) of every level of a line of steps, oldest first."""
    return joined(
        (twins.whole(one[0]), twins.whole(other[0]), one[1])
        for piece in twins.pieces(trace)
        for one, other in pairwise(piece)
        if one[1] == other[1]
    )


def joined(found):
    """Oldest first; levels of one value that touch are one, unknown ones are left out, whole seconds."""
    kept = []
    for begin, end, value in sorted(each for each in found if each[2] is not None):
        if kept and kept[-1][2] == value and begin - kept[-1][1] <= 1_000:
            kept[-1] = (kept[-1][0], end, value)
        elif end > begin:
            kept.append((begin, end, value))
    return kept


def test_prefill():
    deployment = a_deployment("chat", team=a_team())
    run = builders.a_run(deployment, {"prefill": "fail"})
    run.results.update(measures=figure_history.PREFILL)
    log = brought(*ODD, deployment=deployment)
    data, _ = twins.drawn(prefill.draw(deployment))
    rows = [list(row) for row in prefill.figure_of(deployment).twin.rows]
    named = twins.by_name(data)
    p5 = [row for row in rows if "p5 of production" in row[4]]
    lines = [
        (f"{piece[0][0]:,} to {piece[1][0] - 1:,}", f"{piece[0][1]:.2g}")
        for name in ("p5 of production requests", "p5 of production: too fast")
        for piece in twins.pieces(named.pop(name))
    ]
    assert lines == [(row[0], row[2]) for row in p5]
    assert {twins.href(row[4]) for row in p5} == {f"/d/chat/exposure/logs/{log.pk}/#prefill"}
    for name in ("fitted curve", "too fast below"):
        (row,) = [row for row in rows if row[4] == name]
        curve = named.pop(name)
        assert row[1] == f"{curve['x'][0]:,} to {curve['x'][-1]:,}"
        for n, seconds in zip(curve["x"], curve["y"], strict=True):
            assert formula(row[3], n) == pytest.approx(seconds, rel=1e-3, abs=1e-5)
    dots = sorted(
        (x, f"{y:.3g}") for trace in named.values() for x, y in zip(trace["x"], trace["y"], strict=True)
    )
    assert dots == sorted((row[1], row[2]) for row in rows if isinstance(row[1], int))
    assert len(rows) == len(p5) + 2 + len(dots)


def formula(text, n):
    """What ``0.5 × (a + b n + c n²)`` comes to."""
    text = re.sub("<[^>]+>", "", text)
    factor, _, inner = text.rpartition("× (")
    a, b, c = (
        float(part.removesuffix(" n²").removesuffix(" n")) for part in inner.removesuffix(")").split(" + ")
    )
    return (float(factor) if factor else 1) * (a + b * n + c * n * n)


def test_the_trend_of_compliance():
    team = a_team()
    today = timezone.now().date()
    for back, counts in (
        (1, {"pass": 6, "waived": 2, "fail": 2}),
        (8, {"pass": 5, "attested": 3, "error": 1}),
    ):
        for status, count in counts.items():
            DailyCount.objects.create(
                day=today - timedelta(days=back), team=team, item="1", status=status, count=count
            )
    user = a_user(team=team)
    data, _ = twins.drawn(compliance.build(compliance.weeks_of(user)))
    rows = compliance.figure_of(user).twin.rows
    titles = {title.lower(): number for number, title in enumerate(compliance.COLUMNS)}
    drawn = {
        (day, trace["name"]): share
        for trace in data
        for day, share in zip(trace["x"], trace["y"], strict=True)
        if share
    }
    said = {
        (row[0], name): round(100 * row[column] / sum(row[1:7]), 2)
        for row in rows
        for name, column in titles.items()
        if name not in ("end of", "comply") and row[column]
    }
    assert len(said) == 6
    assert drawn == said
