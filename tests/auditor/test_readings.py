"""Readings never pretend, and a restart alone is not a change."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.auditor.readings import (
    EngineFacts,
    Fingerprint,
    RankPool,
    Reading,
    State,
    declared,
    deployment_digest,
    diff,
    fingerprint,
    read,
    smallest_pool,
    text,
    tokens,
    unknown,
    whole_number,
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (681280, 681280),
        ("681280", 681280),
        (681280.0, 681280),
        ("1180.0", 1180),
        (0, None),
        ("0", None),
        (0.0, None),
        (-5, None),
        (None, None),
        (True, None),
        ("None", None),
        ("", None),
        (12.5, None),
        (math.nan, None),
        (math.inf, None),
        ("1e999", None),
        (10**30, None),
        ("9" * 50, None),
        ([], None),
        ({"value": 3}, None),
        ("٣", 3),
    ],
)
def test_a_token_count_is_positive_and_sane_or_unknown(value, expected):
    reading = tokens(value, "GET /v1/loads")
    assert reading.value == expected
    assert reading.known == (expected is not None)
    if not reading.known:
        assert reading.source.startswith("GET /v1/loads is ")


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())))
def test_arbitrary_values_never_raise_and_never_make_a_non_positive_count(value):
    reading = tokens(value, "somewhere")
    assert reading.value is None or (isinstance(reading.value, int) and 0 < reading.value <= 10**12)
    assert whole_number(value) is None or isinstance(whole_number(value), int)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0.5.22", "0.5.22"),
        (" x ", "x"),
        ("", None),
        ("  ", None),
        (None, None),
        (5, None),
        ("x" * 301, None),
    ],
)
def test_text(value, expected):
    assert text(value, "GET /version").value == expected


def test_a_reading_without_value_is_unknown_and_the_other_way_round():
    with pytest.raises(ValueError):
        Reading(None, "nowhere", State.READ)
    with pytest.raises(ValueError):
        Reading(5, "nowhere", State.UNKNOWN)


def rank(pool, swa=None):
    return RankPool("0", pool, swa)


def test_the_pool_is_the_minimum_over_ranks_never_the_sum():
    assert smallest_pool([rank(read(300, "a")), rank(read(200, "b"))]).value == 200


@pytest.mark.parametrize(
    "ranks",
    [
        [],
        [rank(unknown("0"))],
        [rank(read(300, "a")), rank(unknown("snapshot of 0"))],
        [rank(read(300, "a"), unknown("token_capacity_swa is 0"))],
    ],
)
def test_one_unknown_rank_makes_the_pool_unknown(ranks):
    assert not smallest_pool(ranks).known


def test_the_sliding_window_pool_counts_when_smaller():
    assert smallest_pool([rank(read(300, "full"), read(120, "swa"))]).value == 120
    assert smallest_pool([rank(read(300, "full"), read(900, "swa"))]).value == 300


def facts(pool=1000, version="0.5.22", **settings):
    return EngineFacts(
        "sglang",
        version=read(version, "v"),
        pool=read(pool, "p"),
        context=read(900, "c"),
        settings={name: read(value, name) for name, value in settings.items()},
    )


def changes(before, after, *limits):
    return diff(fingerprint(before), fingerprint(after), limits=limits)


def test_a_restart_that_moves_the_pool_by_one_percent_is_no_change():
    (change,) = changes(facts(pool=100_000), facts(pool=101_000))
    assert not change.significant
    assert fingerprint(facts(pool=100_000)).digest == fingerprint(facts(pool=101_000)).digest


@pytest.mark.parametrize(
    ("before", "after", "limits"),
    [
        (100_000, 102_001, ()),
        (100_000, 97_999, ()),
        (100_500, 99_900, (100_000,)),
        (99_900, 100_500, (100_000,)),
    ],
)
def test_a_pool_change_counts_above_two_percent_or_across_a_limit(before, after, limits):
    (change,) = changes(facts(pool=before), facts(pool=after), *limits)
    assert change.significant


def test_a_pool_that_stops_being_exposed_is_a_change():
    (change,) = diff(Fingerprint({}, {"pool": 5}), Fingerprint({}, {"pool": None}))
    assert change.significant


def test_settings_compare_exactly_and_field_by_field():
    found = changes(
        facts(page_size=64, quantization="fp8"), facts(page_size=16, quantization="fp8", version="0.5.23")
    )
    assert [(change.name, change.before, change.after) for change in found] == [
        ("settings.page_size", 64, 16),
        ("version", "0.5.22", "0.5.23"),
    ]


def test_replica_count_alone_does_not_change_a_deployment():
    one = fingerprint(facts())
    other = fingerprint(facts(version="0.5.21"))
    assert deployment_digest([one]) == deployment_digest([one, one])
    assert deployment_digest([one]) != deployment_digest([one, other])
    assert deployment_digest([]) == ""


def test_a_fingerprint_survives_storage():
    stored = fingerprint(facts(page_size=64)).as_json()
    assert Fingerprint.from_json(stored).digest == stored["digest"]
    assert diff(Fingerprint.from_json(stored), fingerprint(facts(page_size=64))) == ()


def test_readings_say_where_they_come_from():
    assert declared(5, "--context").as_report() == {"value": 5, "source": "--context", "state": "declared"}
