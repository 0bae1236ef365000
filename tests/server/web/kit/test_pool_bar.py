"""The drawing must not lie: order of lengths, the danger zone, and unknown as unknown."""

from __future__ import annotations

import pytest

from kvaudit.server.web.kit.parts.pool_bar import WIDTH, drawn, from_measures, pool_bar

INCIDENT = {
    "pool_tokens": 681_280, "context_tokens": 1_048_576, "headroom": 1.25, "danger_zone": [681_274, 1_048_570],
}  # fmt: skip


def test_the_incident_is_drawn_to_scale():
    bar = from_measures(INCIDENT)
    assert bar is not None
    assert 0 < bar.pool_width < bar.context_at < bar.wanted_at < WIDTH
    assert bar.pool_width / bar.context_at == pytest.approx(681_280 / 1_048_576, abs=1e-3)
    assert bar.danger_at == pytest.approx(bar.pool_width, abs=0.1)
    assert bar.danger_at + bar.danger_width == pytest.approx(bar.context_at, abs=0.1)
    assert bar.short
    assert "danger zone 681,274 to 1,048,569 tokens" in bar.sentence


def test_a_large_pool_is_not_short():
    bar = pool_bar(2_040_000, 1_048_576, 1.25, None)
    assert not bar.short
    assert bar.wanted_at < bar.pool_width <= WIDTH
    assert bar.danger_width == 0


@pytest.mark.parametrize("pool", [None, 0, -5, "0", True, 10**30, float("nan"), [], {"value": None}])
def test_an_unreadable_pool_is_unknown_and_never_a_number(pool):
    bar = from_measures({**INCIDENT, "pool_tokens": pool, "danger_zone": None})
    assert bar is not None
    assert bar.pool is None
    assert not bar.short, "unknown is neither short nor enough"
    assert "pool unknown" in bar.sentence


def test_measures_may_be_readings():
    reading = {"value": 681_280, "source": "GET /v1/loads", "state": "read"}
    bar = from_measures({**INCIDENT, "pool_tokens": reading})
    assert bar is not None
    assert bar.pool == 681_280


@pytest.mark.parametrize("zone", [None, [], [1], [5, 5], [9, 3], "ab", [None, 4], {"from": 1}, [1, "x"]])
def test_a_zone_that_makes_no_sense_is_none(zone):
    bar = from_measures({**INCIDENT, "danger_zone": zone})
    assert bar is not None
    assert bar.danger is None


@pytest.mark.parametrize(
    ("pool", "context", "said"),
    [(11_040, 8_192, "1.34"), (12_496, 10_000, "1.24"), (12_500, 10_000, "1.25"), (115, 100, "1.15"), (1, 1_000, "0.00"),
     (9_999_999, 10_000_000, "0.99")],
)  # fmt: skip
def test_a_ratio_is_never_rounded_up(pool, context, said):
    assert f" = {said}×" in drawn(pool_bar(pool, context, 1.25, None))


def test_a_pool_one_token_below_what_is_required_is_short():
    assert pool_bar(12_501, 10_001, 1.25, None).short  # 12,501.25 are wanted
    assert not pool_bar(12_502, 10_001, 1.25, None).short


def test_the_zone_ends_with_its_last_length():
    assert "danger zone</b> 5,322 to 8,185<" in drawn(pool_bar(5_328, 8_192, 1.25, (5_322, 8_186)))


def test_a_thin_zone_is_still_seen():
    assert pool_bar(1_000_000, 1_000_010, 1.0, (1_000_000, 1_000_010)).danger_width >= 6


def test_nothing_known_and_nothing_at_all():
    empty = from_measures({})
    assert empty is not None
    assert empty.pool_width == empty.context_at == 0
    assert from_measures(None) is None
