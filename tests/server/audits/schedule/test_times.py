"""Due times: intervals, cron in zones, clock changes."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.server.audits.schedule.times import Schedule, newest_and_older


def utc(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def slots(schedule, start, count):
    return [f"{slot:%d %H:%M}" for slot in islice(schedule.after(utc(start)), count)]


@pytest.mark.parametrize(
    ("cron", "start", "expected"),
    [
        # Spring: 02:00 becomes 03:00 on 29 March 2026, 01:00 UTC. 02:30 does not exist.
        ("30 2 * * *", "2026-03-28T00:00", ["28 01:30", "29 01:00", "30 00:30"]),
        ("30 * * * *", "2026-03-29T00:00", ["29 00:30", "29 01:30", "29 02:30"]),
        # Autumn: 03:00 becomes 02:00 on 25 October 2026, 01:00 UTC. 02:30 exists twice, runs once.
        ("30 2 * * *", "2026-10-24T12:00", ["25 00:30", "26 01:30", "27 01:30"]),
        ("30 * * * *", "2026-10-24T23:45", ["25 00:30", "25 01:30", "25 02:30"]),
        # Asked in the second pass of the repeated hour: the first pass is gone.
        ("30 2 * * *", "2026-10-25T01:10", ["26 01:30"]),
        ("30 2 * * *", "2026-10-25T00:30", ["26 01:30"]),
    ],
)
def test_cron_at_clock_changes_in_berlin(cron, start, expected):
    assert slots(Schedule(cron=cron, zone="Europe/Berlin"), start, len(expected)) == expected


def test_interval_counts_from_its_anchor_through_clock_changes():
    schedule = Schedule(interval=3600, anchor=utc("2026-01-01T00:07"))
    assert slots(schedule, "2026-10-25T00:07", 3) == ["25 01:07", "25 02:07", "25 03:07"]
    assert schedule.next_after(utc("2025-12-31T23:00")) == utc("2025-12-31T23:07")


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Schedule(), "exactly one"),
        (Schedule(cron="0 2 * * *", interval=60), "exactly one"),
        (Schedule(interval=0), "at least one second"),
        (Schedule(cron="0 2 * *"), "five fields"),
        (Schedule(cron="* * * * * *"), "five fields"),
        (Schedule(cron="61 * * * *"), "not a cron expression"),
        (Schedule(cron="0 0 31 2 *"), "not a cron expression"),
        (Schedule(cron="0 2 * * *", zone="Mars/Olympus"), "not a time zone"),
        (Schedule(cron="0 2 * * *", zone="../../etc/passwd"), "not a time zone"),
    ],
)
def test_a_wrong_schedule_is_a_sentence(schedule, words):
    assert words in schedule.problem()


@pytest.mark.parametrize(
    "schedule", [Schedule(cron="*/5 1 * * mon", zone="Asia/Kolkata"), Schedule(interval=2)]
)
def test_a_right_schedule_has_no_problem(schedule):
    assert schedule.problem() == ""


@pytest.mark.parametrize(
    ("schedule", "first", "now", "expected"),
    [
        (
            Schedule(interval=60, anchor=utc("2026-01-01T00:00")),
            "2026-01-01T00:00",
            "2026-01-01T01:00:30",
            "2026-01-01T01:00",
        ),
        (
            Schedule(interval=60, anchor=utc("2026-01-01T00:00")),
            "2026-01-01T00:00",
            "2026-01-01T00:00",
            "2026-01-01T00:00",
        ),
        (Schedule(cron="0 2 * * *"), "2026-01-01T02:00", "2026-01-09T01:59:59", "2026-01-08T02:00"),
        (Schedule(cron="0 2 * * *"), "2026-01-01T02:00", "2026-01-01T02:00", "2026-01-01T02:00"),
        (Schedule(cron="0 2 29 2 *"), "2024-02-29T02:00", "2027-12-01T00:00", "2024-02-29T02:00"),
        (Schedule(cron="* * * * *"), "2020-01-01T00:00", "2026-06-01T00:00:59", "2026-06-01T00:00"),
    ],
)
def test_newest_slot_after_a_stop(schedule, first, now, expected):
    assert schedule.newest(utc(first), utc(now)) == utc(expected)


def test_newest_and_older_split_a_long_gap():
    for schedule in (Schedule(interval=60, anchor=utc("2026-01-01T00:00")), Schedule(cron="* * * * *")):
        newest, older, last_older = newest_and_older(
            schedule, utc("2026-01-01T00:00"), utc("2026-01-01T01:00"), 10
        )
        assert [slot.minute for slot in newest] == list(range(50, 60))
        assert (older, last_older) == (50, utc("2026-01-01T00:49"))
        assert newest_and_older(schedule, utc("2026-01-01T00:00"), utc("2026-01-01T00:00"), 10) == (
            [],
            0,
            None,
        )


def test_period_of_a_weekday_plan_spans_the_weekend():
    assert Schedule(cron="0 2 * * mon-fri").period(utc("2026-06-01T12:00")) == timedelta(days=3)
    assert Schedule(interval=90).period(utc("2026-06-01T12:00")) == timedelta(seconds=90)


moments = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)).map(  # noqa: DTZ001
    lambda moment: moment.replace(tzinfo=UTC)
)
crons = st.sampled_from(
    ["30 2 * * *", "*/15 * * * *", "0 */6 * * *", "15 1,2,3 * * sun", "5 2 25 10 *", "*/20 2 * * *"]
)
zones = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Casablanca"]
)


@given(cron=crons, zone=zones, moment=moments)
def test_slots_always_move_forward(cron, zone, moment):
    found = list(islice(Schedule(cron=cron, zone=zone).after(moment), 5))
    assert found == sorted(set(found))
    assert found[0] > moment


@given(cron=crons, zone=zones, moment=moments)
def test_the_next_slot_does_not_depend_on_when_one_asks(cron, zone, moment):
    schedule = Schedule(cron=cron, zone=zone)
    first, second = islice(schedule.after(moment), 2)
    assert schedule.next_after(first) == second
    assert schedule.next_after(first - timedelta(microseconds=1)) == first
