"""State as intervals: confirmed, closed, expired, never overlapping; one method for now and the past."""

from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import pairwise

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from kvaudit.auditor.verdict import Verdict
from kvaudit.server import clock
from kvaudit.server.audits.models import CheckState, Result
from kvaudit.server.audits.state import intervals as states
from kvaudit.server.audits.state.intervals import Observation, expiry
from kvaudit.server.fleet.models import FingerprintChange, Node
from tests.drawn import cases
from tests.server.audits.builders import a_run, a_target

MONDAY = datetime(2026, 6, 1, tzinfo=UTC)
PASS, FAIL, INCONCLUSIVE = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


class Scene:
    """One deployment, one check; `say` applies an observation so many hours after Monday."""

    def __init__(self):
        self.target = a_target()
        self.run = a_run(self.target)
        self.attempt = 0

    def say(self, verdict, hours, zone=None, **more):
        self.attempt += 1
        at = MONDAY + timedelta(hours=hours)
        row = Result.objects.create(
            run=self.run,
            deployment=self.target,
            attempt=self.attempt,
            check_id="pool",
            verdict=verdict.value,
            summary="",
            measures={"danger_zone": zone},
            observed_at=at,
        )
        more = {"interval": 3600, "zone": states.zone_of(row), **more}
        changes = states.apply(
            [Observation(self.target.pk, "pool", verdict, at, self.run.pk, row.pk, **more)]
        )
        return [(change.before, change.after) for change in changes]

    def intervals(self):
        return [
            (
                state.verdict,
                (state.since - MONDAY) / timedelta(hours=1),
                (state.last_confirmed - MONDAY) / timedelta(hours=1),
                None if state.closed_at is None else (state.closed_at - MONDAY) / timedelta(hours=1),
            )
            for state in CheckState.objects.order_by("since", "id")
        ]


@pytest.fixture
def scene(db):
    return Scene()


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (0, timedelta(days=7)),
        (3600, timedelta(days=7)),
        (5 * 86400, timedelta(days=7.5)),
        (30 * 86400, timedelta(days=45)),
    ],
)
def test_expiry_is_one_and_a_half_intervals_but_at_least_a_week(interval, expected):
    assert expiry(MONDAY, interval) == MONDAY + expected


def test_the_same_verdict_confirms_and_another_closes(scene):
    assert scene.say(PASS, 0) == [("", "pass")]
    assert scene.say(PASS, 1) == []
    assert scene.say(FAIL, 2) == [("pass", "fail")]
    assert scene.say(FAIL, 3) == []
    assert scene.intervals() == [("pass", 0, 1, 2), ("fail", 2, 3, None)]


def test_an_older_observation_changes_nothing(scene):
    scene.say(FAIL, 5)
    assert scene.say(PASS, 4) == []
    assert scene.say(PASS, 5) == []
    assert scene.intervals() == [("fail", 5, 5, None)]


def test_a_gap_longer_than_the_expiry_begins_a_new_interval_even_of_the_same_verdict(scene):
    scene.say(PASS, 0)
    assert scene.say(PASS, 7 * 24 + 1) == [("expired", "pass")]
    assert scene.intervals() == [("pass", 0, 0, 7 * 24 + 1), ("pass", 7 * 24 + 1, 7 * 24 + 1, None)]


def test_warnings_and_severity_are_part_of_what_is_said(scene):
    scene.say(PASS, 0)
    assert scene.say(PASS, 1, warn=True) == [("pass", "pass")]
    assert scene.say(FAIL, 2, severity="high") == [("pass", "fail")]
    assert scene.say(FAIL, 3, severity="critical") == [("fail", "fail")]
    assert len(scene.intervals()) == 4


def test_another_configuration_begins_an_interval_without_a_change_of_verdict(scene):
    scene.say(PASS, 0, fingerprint="a")
    assert scene.say(PASS, 1, fingerprint="b") == []
    assert [row[0] for row in scene.intervals()] == ["pass", "pass"]


def test_a_capacity_change_expires_what_was_known_before_it(scene):
    scene.say(PASS, 0)
    node = Node.objects.get(deployment=scene.target)
    change = FingerprintChange(
        deployment=scene.target, node=node, at=MONDAY + timedelta(hours=2), significant=True
    )
    states.expire_for([change])
    state = CheckState.objects.get()
    assert (state.expires_at, state.expired_by) == (change.at, "capacity change")
    assert scene.say(PASS, 3) == [("expired", "pass")]
    # Seen again later, it does not touch what was confirmed since.
    states.expire_for([change])
    assert CheckState.objects.get(closed_at=None).expired_by == ""


def test_as_of_any_moment_says_what_held_then(scene):
    scene.say(PASS, 0)
    scene.say(FAIL, 2)
    scene.say(PASS, 2 + 8 * 24)

    def at(hours):
        moment = MONDAY + timedelta(hours=hours)
        return [(state.verdict, state.expired) for state in CheckState.objects.as_of(moment)]

    assert at(-1) == []
    assert at(0) == [("pass", False)]
    assert at(1.9) == [("pass", False)]
    assert at(2) == [("fail", False)]
    assert at(2 + 7 * 24) == [("fail", True)]
    assert at(2 + 8 * 24) == [("pass", False)]


class Intervals(TestCase):
    """Whatever is observed in whatever order: one open interval, no overlap, as_of() agrees with replay."""

    @given(
        seen=st.lists(
            st.tuples(st.sampled_from([PASS, FAIL, INCONCLUSIVE]), st.integers(0, 500)),
            min_size=1,
            max_size=12,
        ),
        moment=st.integers(0, 600),
    )
    @hypothesis_settings(max_examples=cases(40))
    def test_any_order(self, seen, moment):
        scene = Scene()
        newest = max(hours for _, hours in seen)
        told = {verdict.value for verdict, hours in seen if hours == newest}
        for verdict, hours in seen:
            scene.say(verdict, hours)
        assert CheckState.objects.filter(closed_at=None).count() == 1
        rows = [row for row in scene.intervals() if row[1] != row[3]]
        for earlier, later in pairwise(rows):
            assert earlier[3] == later[1]
        assert all(row[3] is None or row[2] <= row[3] for row in scene.intervals())
        assert rows[-1][0] != "pass" or "pass" in told
        failed = [(since, closed or 1e9) for verdict, since, _, closed in rows if verdict == "fail"]
        for verdict, hours in seen:
            assert verdict is not FAIL or any(since <= hours < end for since, end in failed), "hidden"
        held = CheckState.objects.as_of(MONDAY + timedelta(hours=moment))
        assert len(held) == (1 if moment >= rows[0][1] else 0)


LATE = {
    "after a pass": ([(PASS, 0), (PASS, 10)], 5, [("pass", 0, 5, 5), ("fail", 5, 5, None)]),
    "after a pass that began later": (
        [(PASS, 0), (INCONCLUSIVE, 4), (PASS, 7), (PASS, 10)],
        5,
        [("pass", 0, 0, 4), ("inconclusive", 4, 4, 5), ("fail", 5, 5, None), ("pass", 7, 7, 7)],
    ),
    "before everything": ([(PASS, 3), (PASS, 9)], 1, [("fail", 1, 1, None), ("pass", 3, 3, 3)]),
    "of the same moment": ([(PASS, 0), (PASS, 5)], 5, [("pass", 0, 5, 5), ("fail", 5, 5, None)]),
    "after an error": (
        [(Verdict.ERROR, 0), (Verdict.ERROR, 9)],
        5,
        [("error", 0, 5, 5), ("fail", 5, 5, None)],
    ),
    "after a fail that was mended before": (
        [(FAIL, 0), (PASS, 4), (PASS, 9)],
        5,
        [("fail", 0, 0, 4), ("pass", 4, 5, 5), ("fail", 5, 5, None)],
    ),
}


@pytest.mark.parametrize("case", LATE)
def test_a_fail_is_never_dropped_for_being_late(scene, case):
    """Of passes that were heard first, however many: it stands until something newer passes."""
    before, hours, after = LATE[case]
    for verdict, at in before:
        scene.say(verdict, at)
    last = before[-1][0].value
    assert scene.say(FAIL, hours) == [(last, "fail")]
    assert scene.intervals() == after
    assert scene.say(PASS, hours) == scene.say(INCONCLUSIVE, hours - 0.5) == [], "older than the fail"
    assert scene.say(PASS, 11) == [("fail", "pass")]
    assert CheckState.objects.get(closed_at=None).verdict == "pass"


@pytest.mark.parametrize("newest", [PASS, INCONCLUSIVE])
@pytest.mark.parametrize("since", [0, 6])
def test_a_fail_that_was_heard_late_is_ended_by_what_is_newer_than_everything(scene, newest, since):
    """Not by a pass of after the fail that was itself heard after something newer."""
    scene.say(newest, since)
    scene.say(newest, 6)
    scene.say(FAIL, 2)
    assert scene.say(PASS, 4) == scene.say(INCONCLUSIVE, 5) == []
    assert CheckState.objects.get(closed_at=None).verdict == "fail"
    assert scene.say(PASS, 7) == [("fail", "pass")]


def test_a_late_fail_widens_the_one_that_lasts_and_one_that_is_graver_begins_anew(scene):
    scene.say(PASS, 0)
    scene.say(FAIL, 6, severity="high")
    assert scene.say(FAIL, 4, severity="high") == []
    assert scene.say(FAIL, 5, severity="low") == []
    assert scene.intervals() == [("pass", 0, 0, 4), ("fail", 4, 6, None)]
    assert scene.say(FAIL, 5, severity="critical") == [("fail", "fail")]
    assert CheckState.objects.get(closed_at=None).severity == "critical"


def test_a_fail_that_a_later_pass_has_mended_is_not_opened_by_its_run_ending_after_that(scene):
    """An active run's results are applied when they are seen, and come again when it ends."""
    scene.say(FAIL, 1)
    scene.say(PASS, 2)
    assert scene.say(FAIL, 1, heard=True) == []
    assert CheckState.objects.get(closed_at=None).verdict == "pass"


@pytest.mark.parametrize("ahead", [timedelta(minutes=1), timedelta(hours=2), timedelta(days=400)])
@pytest.mark.parametrize("poison", [PASS, FAIL, Verdict.ERROR])
@pytest.mark.parametrize("seen", [PASS, FAIL, INCONCLUSIVE])
def test_what_a_wrong_clock_wrote_into_the_future_is_no_newer_than_what_is_seen_now(db, ahead, poison, seen):
    """States of an earlier release, which went by its workers' own clocks."""
    scene, began = Scene(), (clock.now() - MONDAY) / timedelta(hours=1)
    scene.say(poison, began - 1)
    scene.say(poison, began + ahead / timedelta(hours=1))
    scene.say(seen, began)
    held = CheckState.objects.get(closed_at=None)
    assert held.verdict == seen.value
    assert held.last_confirmed == MONDAY + timedelta(hours=began)


def test_a_capacity_change_expires_what_a_wrong_clock_confirmed_in_the_future(scene):
    moment = clock.now()
    scene.say(PASS, (moment + timedelta(hours=2) - MONDAY) / timedelta(hours=1))
    states.expire_for([FingerprintChange(deployment=scene.target, at=moment, significant=True)])
    assert CheckState.objects.get().expired_by == "capacity change"


def zones():
    return list(CheckState.objects.order_by("since").values_list("zone_low", "zone_high"))


def test_a_fail_that_goes_on_over_restarts_holds_the_lengths_of_all_its_pools(scene):
    scene.say(FAIL, 0, [1, 2_000_000])
    scene.say(PASS, 1, [2, 3_000_000])
    for hours, zone in enumerate(
        ([680_000, 1_048_570], [670_000, 1_048_570], [690_000, 1_048_999], "odd"), 2
    ):
        scene.say(FAIL, hours, zone)
    assert zones() == [(1, 2_000_000), (None, None), (670_000, 1_048_999)]


def test_a_zone_that_is_heard_of_late_was_open_all_the_same(scene):
    scene.say(FAIL, 1, [500, 900])
    scene.say(PASS, 5)
    scene.say(FAIL, 7, [600, 900])
    scene.say(FAIL, 9, [600, 900])
    assert [
        scene.say(FAIL, hours, zone) for hours, zone in ((3, [400, 800]), (8, [600, 950]), (6, [1, 2]))
    ] == [[]] * 3
    assert zones() == [(400, 900), (None, None), (1, 950)]
    assert [row[0] for row in scene.intervals()] == ["fail", "pass", "fail"]
    with CaptureQueriesContext(connection) as queries:
        scene.say(FAIL, 2)
        scene.say(PASS, 8, [1, 2])
    assert not [query["sql"] for query in queries if "UPDATE" in query["sql"]], (
        "what is late and says nothing writes nothing"
    )


def test_a_fail_heard_of_while_tests_come_to_nothing_stands_with_its_zone(scene):
    scene.say(FAIL, 1, [500, 900])
    scene.say(INCONCLUSIVE, 5)
    scene.say(FAIL, 4, [450, 900])
    scene.say(INCONCLUSIVE, 7)
    scene.say(FAIL, 6, [400, 950])
    assert zones() == [(450, 900), (None, None), (400, 950)]
    assert scene.intervals() == [("fail", 1, 1, 5), ("inconclusive", 5, 6, 6), ("fail", 6, 6, None)]


@pytest.mark.parametrize(
    ("told", "zone"),
    [
        ([681_274, 1_048_570], (681_274, 1_048_570)), (["7", 9.0], (7, 9)), ([9, 7], None), ([7, 7], None), ([-1, 7], None),
        ([7], None), ([1, 2, 3], None), ("12", None), ({"0": 1}, None), (None, None), ([None, 7], None), ([1, 10**30], None),
        ([True, 7], None), ([[1], 7], None),
    ],
)  # fmt: skip
def test_what_is_no_zone_is_none(told, zone):
    result = Result(verdict="fail", measures={"danger_zone": told})
    assert states.zone_of(result) == zone
    result.verdict = "pass"
    assert states.zone_of(result) is None


def test_results_of_earlier_releases_come_to_the_same_zones(scene):
    for hours, verdict, zone in (
        (0, FAIL, [1, 2_000_000]), (1, PASS, [2, 3]), (2, FAIL, [680_000, 1_048_570]), (3, FAIL, [670_000, 1_048_999]),
        (4, FAIL, "odd"), (5, FAIL, [9, 7]), (5.2, FAIL, [1, 2, 3]), (6, PASS, None), (7, FAIL, {"low": 1}),
        (5.5, FAIL, [660_000, 700_000]), (0.5, FAIL, [1, 2_000_001]),
    ):  # fmt: skip
        scene.say(verdict, hours, zone)
    kept = zones()
    CheckState.objects.update(zone_low=None, zone_high=None)
    with connection.cursor() as cursor:
        cursor.execute(import_module("kvaudit.server.audits.migrations.0007_state_zone").FILL)
    assert zones() == kept == [(1, 2_000_001), (None, None), (660_000, 1_048_999), (None, None), (None, None)]
