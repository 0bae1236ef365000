"""Hours in which audits may run."""

from datetime import UTC, datetime, timedelta

import pytest

from kvaudit.server.audits.schedule import windows

NIGHT = {"days": [], "from": "22:00", "to": "06:00", "zone": "Europe/Berlin"}
WEEKEND = {"days": ["sat", "sun"], "from": "00:00", "to": "24:00", "zone": "UTC"}


def utc(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("lists", "moment", "expected"),
    [
        ([[]], "2026-06-03T12:00", True),
        ([[NIGHT]], "2026-06-03T19:59", False),  # 21:59 in Berlin
        ([[NIGHT]], "2026-06-03T20:00", True),
        ([[NIGHT]], "2026-06-04T03:59", True),
        ([[NIGHT]], "2026-06-04T04:00", False),  # the end is exclusive
        ([[WEEKEND]], "2026-06-06T00:00", True),
        ([[WEEKEND]], "2026-06-07T23:59", True),
        ([[WEEKEND]], "2026-06-08T00:00", False),
        ([[NIGHT, WEEKEND]], "2026-06-06T12:00", True),
        ([[NIGHT], [WEEKEND]], "2026-06-06T12:00", False),
        ([[NIGHT], [WEEKEND]], "2026-06-06T02:00", True),
    ],
)
def test_open(lists, moment, expected):
    assert windows.is_open(utc(moment), *lists) is expected


@pytest.mark.parametrize(
    ("lists", "moment", "expected"),
    [
        ([[]], "2026-06-03T12:00", "2026-06-03T12:00"),
        ([[NIGHT]], "2026-06-03T12:00", "2026-06-03T20:00"),
        ([[NIGHT]], "2026-06-03T21:00", "2026-06-03T21:00"),
        ([[NIGHT], [WEEKEND]], "2026-06-03T12:00", "2026-06-06T00:00"),
        ([[NIGHT]], "2026-12-03T12:00", "2026-12-03T21:00"),  # winter time
    ],
)
def test_next_open(lists, moment, expected):
    assert windows.next_open(utc(moment), *lists) == utc(expected)


def test_lists_that_never_meet():
    noon = {"days": ["mon"], "from": "12:00", "to": "13:00"}
    assert windows.next_open(utc("2026-06-03T12:00"), [noon], [WEEKEND]) is None


@pytest.mark.parametrize(
    "wrong",
    [
        "always",
        [{"from": "22:00"}],
        [{"from": "25:00", "to": "06:00"}],
        [{"from": "22:00", "to": "06:00", "days": ["monday"]}],
        [{"from": "22:00", "to": "06:00", "zone": "Mars/Olympus"}],
        [{"from": 22, "to": 6}],
        ["22:00-06:00"],
    ],
)
def test_a_wrong_window_is_a_sentence(wrong):
    assert windows.problem(wrong).endswith(".")


def test_right_windows_have_no_problem():
    assert windows.problem([NIGHT, WEEKEND]) == ""


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([], []),
        ([{"from": "22:00", "to": "06:00"}], [(0, 6), (22, 30), (46, 48)]),
        ([{"days": ["fri"], "from": "10:00", "to": "12:00"}], [(34, 36)]),
        ([{"from": "10:00", "to": "12:00"}, {"from": "11:00", "to": "13:00"}], [(10, 13), (34, 37)]),
        ([{"from": "01:00", "to": "03:00", "zone": "Europe/Berlin"}], [(0, 2), (24, 26)]),
    ],
)
def test_spans_are_clipped_joined_and_in_order(lists, expected):
    start = datetime(2026, 1, 1, tzinfo=UTC)  # a Thursday
    found = windows.spans(lists, start, start + timedelta(days=2))
    assert [((a - start) / HOUR, (b - start) / HOUR) for a, b in found] == expected
