"""A bigger pool or an explicit 400: the numbers that the choice rests on."""

from __future__ import annotations

import pytest

from kvaudit.web.tables.capacity import capacity_of
from tests.web import scene

SHORT = {"pool_tokens": 681_280, "context_tokens": 1_048_576, "headroom": 1.25}


def test_a_short_pool_has_its_price_either_way():
    found = capacity_of(SHORT)
    assert found.required == 1_310_720
    assert found.missing == 629_440
    assert round(found.growth, 3) == 0.924
    assert found.edge == 545_024
    assert found.refused == 503_552
    assert round(found.refused_share, 3) == 0.48
    assert found.held_back == 262_144
    assert found.held_back_share == 0.2
    assert "cannot hold even one request of the promised 1,048,576" in found.sentence


def test_a_pool_without_its_headroom_holds_one_but_lacks_tokens():
    found = capacity_of({**SHORT, "pool_tokens": 1_100_000})
    assert not found.unheld
    assert found.sentence == (
        "The pool of 1,100,000 tokens holds 1 full-context request at once, but 210,720 tokens of its headroom are missing."
    )


def test_a_large_pool_refuses_nothing():
    found = capacity_of(scene.LARGE_POOL)
    assert (found.missing, found.refused, found.spare) == (0, 0, 729_280)
    assert found.fits[0].at_once == 1


def test_the_tightest_node_decides_how_many_fit_rank_by_rank():
    nodes = [
        {"ranks": [{"usable": {"value": 1_000, "state": "read"}}, {"usable": 900}]},
        {"ranks": [{"usable": 5_000}]},
    ]
    found = capacity_of({"pool_tokens": 900, "context_tokens": 800, "headroom": 1.0, "nodes": nodes})
    # A request lives on one rank: two ranks of 1,000 and 900 hold two of 400 each, four in all.
    assert [(fit.length, fit.at_once) for fit in found.fits] == [(800, 2), (400, 4), (200, 9), (50, 38)]


def test_a_rank_that_is_unknown_makes_the_number_unknown():
    nodes = [{"ranks": [{"usable": {"value": None}}, {"usable": 900}]}]
    found = capacity_of({"pool_tokens": 900, "context_tokens": 800, "headroom": 1.0, "nodes": nodes})
    assert found.fits[0].at_once is None
    assert "an unknown number of full-context requests" in found.sentence


@pytest.mark.parametrize(
    "measures",
    [
        None,
        {},
        {**SHORT, "pool_tokens": None},
        {**SHORT, "context_tokens": 0},
        {**SHORT, "headroom": "much"},
        {**SHORT, "headroom": float("nan")},
        {**SHORT, "pool_tokens": {"value": None, "state": "unknown"}},
        {**SHORT, "pool_tokens": -5},
        {**SHORT, "pool_tokens": True},
    ],
)
def test_what_is_unknown_is_not_weighed(measures):
    assert capacity_of(measures) is None
