"""Measures of any shape become something readable, and unknown stays unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.server.web.kit.parts.measures import readable, text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)


def one(name: str, value: object):
    (found,) = readable({name: value})
    return found


@pytest.mark.parametrize(
    ("name", "value", "kind", "shown"),
    [
        ("pool_tokens", 681_280, "text", "681,280"),
        ("pool_tokens", None, "unknown", ""),
        ("edge_limit", None, "text", "none declared"),
        ("danger_zone", [681_274, 1_048_570], "text", "681,274 to 1,048,569"),
        ("danger_zone", None, "text", "none found"),
        ("history_consulted", True, "text", "yes"),
        ("pins", ["sglang>=0.5.22"], "text", "sglang>=0.5.22"),
        ("findings", ["One sentence.", "And another."], "list", ["One sentence.", "And another."]),
        ("ratio", 0.123456, "text", "0.1235"),
        ("bound", 0.04879, "text", "4.9 %"),
        ("bound", 0.0003, "text", "0.03 %"),
        ("bound", 1.0, "text", "none: this run bounds nothing"),
        ("bound", None, "text", "none: this run bounds nothing"),
        ("confidence", 0.95, "text", "95 %"),
        ("dirtying", None, "unknown", ""),
        ("dirtying", True, "text", "yes"),
        ("echoes", [3, 1_200], "text", "3 of 1,200"),
        ("echoes", [3, None], "text", "3, unknown"),
        (
            "timing",
            {"median_gain": 0.25, "p": 0.001},
            "pairs",
            [
                ("another's prefix is faster by, of the median", "25 %"),
                ("another's prefix is not faster (p)", "0.001"),
            ],
        ),
        ("asked", {"a": {"/x": 200}}, "pairs", [("a", "/x: 200")]),
    ],
)
def test_shapes(name, value, kind, shown):
    found = one(name, value)
    assert (found.kind, found.value) == (kind, shown)


def test_a_time_is_a_time():
    assert one("changed_at", "2026-11-29T10:00:00+00:00").value.year == 2026
    assert one("changed_at", "yesterday").kind == "text"


def test_a_table_starts_with_names_and_drops_what_is_empty_everywhere():
    grid = one(
        "nodes", [{"pool": 1, "name": "a", "notes": []}, {"pool": None, "name": "b", "notes": []}]
    ).value
    assert grid.columns == ["Name", "Pool"]
    assert grid.rows == [["a", "1"], ["b", "unknown"]], "unknown is shown, not dropped"


def test_shares_in_a_table_are_percentages():
    grid = one("arms", [{"arm": "burst", "pool_peak": 0.973}, {"arm": "alone", "pool_peak": None}]).value
    assert grid.columns == ["Arm", "Pool in use at most"]
    assert grid.rows == [["burst", "97.3 %"], ["alone", "unknown"]]


def test_a_long_table_says_what_it_leaves_out():
    assert one("nodes", [{"name": str(n)} for n in range(500)]).value.left_out == 300


def test_readings_keep_their_source():
    reading = {"value": None, "source": "absent", "state": "unknown"}
    assert one("pool", reading).kind == "reading"
    assert text(reading) == "unknown"


@given(st.dictionaries(st.text(max_size=12), JSON, max_size=5))
def test_nothing_breaks_it(measures):
    assert len(readable(measures)) == len(measures)


def test_pairs_within_a_cell_take_one_line():
    rows = [{"name": "half", "by_depth": [{"depth": 0, "found": True}, {"depth": 0.5, "found": False}]}]
    (measure,) = readable({"readings": rows})
    assert measure.value.rows == [["half", "0 yes, 0.5 no"]]
