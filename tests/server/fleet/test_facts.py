"""Facts as JSON: whole, storable, and the same when nothing moved."""

from __future__ import annotations

import math
from typing import Any

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.auditor.readings import EngineFacts, RankPool, Worker, read, unknown
from kvaudit.server.fleet.facts import content_digest, facts_as_json, shown, storable, storable_fingerprint


def facts(**fields: Any) -> EngineFacts:
    fields = {"version": read("0.5.22", "GET /server_info"), "pool": read(681_280, "GET /v1/loads"), **fields}
    return EngineFacts("sglang", **fields)


def test_every_reading_keeps_its_source_and_state() -> None:
    stored = facts_as_json(
        facts(
            ranks=(RankPool("0", read(681_280, "a"), unknown("no window")),),
            settings={"page_size": read(16, "b")},
        )
    )
    assert stored["version"] == {"value": "0.5.22", "source": "GET /server_info", "state": "read"}
    assert stored["model"]["state"] == "unknown"
    assert stored["ranks"][0]["sliding_window"] == {"value": None, "source": "no window", "state": "unknown"}
    assert stored["settings"]["page_size"]["value"] == 16


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({}, True),
        ({"version": read("0.5.22", "GET /get_server_info")}, True),  # read elsewhere
        ({"notes": ("asked twice",)}, True),
        ({"version": read("0.5.23", "GET /server_info")}, False),
        ({"version": unknown("GET /server_info did not answer")}, False),
        ({"process": read("pid 2", "x")}, False),
        ({"conditions": {"pd": True}}, False),
        ({"workers": (Worker("http://a"),)}, False),
    ],
)
def test_what_makes_a_new_snapshot(changed: dict[str, Any], same: bool) -> None:
    before, after = facts_as_json(facts()), facts_as_json(facts(**changed))
    assert (content_digest(before) == content_digest(after)) is same


def test_workers_in_another_order_are_the_same() -> None:
    one, two = Worker("http://a"), Worker("http://b")
    first, second = (facts_as_json(facts(workers=each)) for each in ((one, two), (two, one)))
    assert content_digest(first) == content_digest(second)


HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(HOSTILE, max_size=4))
def test_nothing_that_an_engine_says_is_unstorable(values: list[Any]) -> None:
    def plain(value: Any) -> None:
        if isinstance(value, str):
            assert "\x00" not in value
            value.encode()
        elif isinstance(value, float):
            assert math.isfinite(value)
        elif isinstance(value, dict):
            plain(list(value.keys()))
            plain(list(value.values()))
        elif isinstance(value, list):
            for item in value:
                plain(item)
        else:
            assert value is None or isinstance(value, bool | int)

    plain(storable(values))


@pytest.mark.django_db
def test_postgres_takes_the_worst_of_it() -> None:
    worst = facts(
        version=read("0.5\x00.22\ud800", "GET /\x00"),
        settings={"a\x00": read(float("nan"), "x"), "b": read(10**30, "x")},
    )
    import json

    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb, %s::text", [json.dumps(facts_as_json(worst)), shown(worst.version)])
        assert cursor.fetchone()[1] == "0.5\ufffd.22?"
    assert storable_fingerprint(worst).exact["version"] == "0.5\ufffd.22?"
