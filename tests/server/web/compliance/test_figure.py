"""The trend: shares of cells week by week, what passed apart from what rests on somebody's word."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from kvaudit.server.checklists.evaluation import Status
from kvaudit.server.checklists.models import DailyCount
from kvaudit.server.web.compliance.figure import DRAWN, build, share, weeks_of
from tests.factories import a_team, a_user

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
LAST = date(2026, 11, 29)


def test_every_status_but_not_applicable_is_drawn_in_its_own_way():
    assert {status for status, *_ in DRAWN} == set(Status) - {Status.NOT_APPLICABLE}
    assert len({(colour, hatch) for _, _, colour, hatch in DRAWN}) == len(DRAWN)


def test_a_bar_is_the_whole_and_what_is_not_applicable_is_no_part_of_it():
    weeks = [(LAST, {Status.PASS: 6, Status.WAIVED: 2, Status.FAIL: 2, Status.NOT_APPLICABLE: 90})]
    data, layout = build(weeks)
    assert {trace["name"]: trace["y"] for trace in data} == {
        "passed by checks": [60.0],
        "by waiver": [20.0],
        "fail": [20.0],
    }
    assert layout["barmode"] == "stack"
    assert share(weeks[0][1]) == "80 %"
    assert share({Status.NOT_APPLICABLE: 3}) == "nothing applies"
    assert build([]) == ([], build([])[1])


@pytest.mark.django_db
def test_weeks_end_yesterday_and_are_of_teams_in_sight():
    ours, theirs = a_team(), a_team()
    for back, team, count in ((0, ours, 5), (7, ours, 4), (3, ours, 99), (0, theirs, 50), (7 * 26, ours, 1)):
        DailyCount.objects.create(
            day=LAST - timedelta(days=back), team=team, item="1", status="pass", count=count
        )
        DailyCount.objects.create(
            day=LAST - timedelta(days=back), team=team, item="2", status="pass", count=1
        )
    member = a_user(team=ours)
    assert weeks_of(member, now=NOW) == [
        (LAST - timedelta(days=7), {Status.PASS: 5}),
        (LAST, {Status.PASS: 6}),
    ]
    assert weeks_of(a_user(role="viewer"), now=NOW)[-1] == (LAST, {Status.PASS: 57})
    assert weeks_of(member, theirs.slug, NOW) == []
