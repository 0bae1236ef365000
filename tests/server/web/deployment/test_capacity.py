"""A bigger pool or an explicit 400: the numbers that the choice rests on."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kvaudit.server.inquiries.request_logs.production import Lengths
from kvaudit.server.web.deployment.capacity import Ranks, capacity_of
from tests.server.web import builders

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
    assert found.held_back_percent == 20.0  # of the required pool
    assert "cannot hold even one request of the promised 1,048,576" in found.sentence


def test_a_pool_without_its_headroom_holds_one_but_lacks_tokens():
    found = capacity_of({**SHORT, "pool_tokens": 1_100_000})
    assert not found.unheld
    assert found.sentence == (
        "The pool of 1,100,000 tokens holds 1 full-context request at once, but 210,720 tokens of its headroom are missing."
    )


def test_a_large_pool_refuses_nothing():
    found = capacity_of(builders.LARGE_POOL)
    assert (found.missing, found.refused, found.spare) == (0, 0, 729_280)
    assert found.fits[0].at_once == 1
    assert found.held_back_percent == 12.9  # 262,144 of 2,040,000: of the pool as it is


def test_the_headroom_is_a_share_of_the_pool_that_is_there():
    found = capacity_of({"pool_tokens": 11_040, "context_tokens": 8_192, "headroom": 1.25})
    assert (found.held_back, found.held_back_percent) == (2_048, 18.6)


def test_a_pool_that_grows_holds_what_all_its_ranks_hold():
    nodes = [{"ranks": [{"usable": 1_000}, {"usable": 600}, {"usable": 4_000}]}, {"ranks": [{"usable": 900}]}]
    short = {"pool_tokens": 600, "context_tokens": 800, "headroom": 1.25, "nodes": nodes}
    assert capacity_of(short).ranks == Ranks(number=4, short=2, missing=500, at_once=1)
    assert capacity_of({**short, "nodes": nodes[:1]}).ranks == Ranks(3, 1, 400, at_once=1 + 1 + 5)
    assert capacity_of({**SHORT, "headroom": 2.5}).ranks.at_once == 2
    assert capacity_of(SHORT).ranks == Ranks(1, 1, 629_440, 1)


def test_a_rank_that_is_unknown_leaves_open_what_all_of_them_lack():
    nodes = [{"ranks": [{"usable": {"value": None}}, {"usable": 600}]}]
    assert capacity_of({**SHORT, "nodes": nodes}).ranks is None


def counted(*counts, requests=3_000):
    return Lengths(7, datetime(2026, 11, 1, tzinfo=UTC), requests, [list(count) for count in counts])


def test_what_the_edge_would_refuse_is_counted_in_a_log():
    # The edge is 545,024: the first bucket may lie on either side; beyond the context the engine refuses already.
    log = counted((0, 64, 2_900), (524_288, 589_824, 40), (983_040, 1_048_576, 9), (1_048_576, 1_179_648, 51))
    asked = capacity_of(SHORT, log).asked
    assert (asked.requests, asked.log) == (3_000, 7)
    assert (asked.refused.least, asked.refused.most) == (9, 100)
    assert asked.refused.words == "9 to 100"


def test_without_a_log_or_where_nothing_is_refused_no_requests_are_counted():
    assert capacity_of(SHORT).asked is None
    assert capacity_of(SHORT, counted(("x", 1, 2))).asked is None
    assert capacity_of(builders.LARGE_POOL, counted((0, 64, 1))).asked is None


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
