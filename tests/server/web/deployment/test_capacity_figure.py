"""Pool and context over time: the smallest pool, what is unknown, and where the danger zone lies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from kvaudit.server.web.deployment.figures import capacity, pools
from kvaudit.server.web.deployment.figures.pools import ReadPool
from kvaudit.server.web.kit import figure as frame
from tests.factories import a_team
from tests.server.web.deployment import figure_history

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def seen(node, since, until, pool, context=1_000, role="prefill"):
    return ReadPool(node, role, NOW - since * HOUR, NOW - until * HOUR, pool, context)


def stepped(*found, declared=None):
    steps = pools.steps(pools.lasting(found, NOW), declared)
    return [((NOW - step.start) // HOUR, (NOW - step.end) // HOUR, step.pool, step.context) for step in steps]


def test_the_smallest_pool_of_all_nodes_counts():
    assert stepped(seen("a", 10, 0, 800), seen("b", 6, 0, 500)) == [(10, 6, 800, 1_000), (6, 0, 500, 1_000)]


def test_a_reading_lasts_to_the_next_one_of_its_node():
    assert stepped(seen("a", 10, 8, 800), seen("a", 5, 0, 600)) == [(10, 5, 800, 1_000), (5, 0, 600, 1_000)]


def test_a_node_that_is_not_read_for_a_day_is_unknown_from_then():
    assert stepped(seen("a", 100, 90, 800), seen("a", 10, 0, 600)) == [
        (100, 66, 800, 1_000),
        (10, 0, 600, 1_000),
    ]


def test_an_unknown_pool_makes_the_smallest_unknown():
    assert stepped(seen("a", 10, 0, 800), seen("b", 6, 0, None)) == [(10, 6, 800, 1_000), (6, 0, None, 1_000)]


def test_the_declared_context_counts_where_it_is_larger():
    assert stepped(seen("a", 10, 0, 800), declared=2_000) == [(10, 0, 800, 2_000)]


def built(*found, headroom=1.25):
    data, _ = capacity.build(found, [], headroom, None, NOW)
    return {item["name"]: item for item in data}


def test_the_zone_lies_between_the_prefill_pool_and_the_context():
    zone = built(seen("a", 10, 0, 800), seen("b", 10, 0, 600, role="decode"))[
        "danger zone: accepted, longer than the pool"
    ]
    assert zone["y"][:4] == [800, 1_000, 1_000, 800]


@pytest.mark.parametrize("pool", [1_000, 2_000, None])
def test_no_zone_where_the_pool_is_large_enough_or_unknown(pool):
    assert not any("danger" in name for name in built(seen("a", 10, 0, pool)))


def test_the_headroom_line_is_a_multiple_of_the_context():
    found = built(seen("a", 10, 0, 800), headroom=1.5)
    assert found["context × 1.5, what the pool must hold"]["y"] == [1_500, 1_500]
    assert found["context"]["y"] == [1_000, 1_000]


def test_an_unknown_pool_leaves_a_gap_in_the_line():
    line = built(seen("a", 10, 8, 800), seen("a", 8, 5, None), seen("a", 5, 0, 700))["smallest pool"]
    assert line["y"] == [800, 800, None, 700, 700]


def test_node_names_are_no_markup():
    found = built(seen("<b>", 10, 0, 800), seen("b", 6, 0, 900))
    assert "pool of &lt;b&gt; (prefill)" in found


@pytest.mark.django_db
def test_a_past_is_drawn_with_two_queries_and_its_changes_on_the_line(django_assert_num_queries):
    past = figure_history.a_past("chat-past", team=a_team(), changes=3)
    with django_assert_num_queries(2):
        data, shown = capacity.draw(past)
    marks = next(item for item in data if item["mode"] == "markers")
    assert marks["y"] == [681_280, 1_500_000]
    assert shown["xaxis"]["range"][1] > frame.local(timezone.now())
    figure = capacity.figure_of(past)
    together = [row for row in figure.twin.rows if row[2] == "all nodes: the smallest"]
    assert [row[3:7] for row in together] == [
        [1_500_000, 1_048_576, 1_310_720, "none"],
        [681_280, 1_048_576, 1_310_720, "681,280 to 1,048,576"],
        [2_040_000, 1_048_576, 1_310_720, "none"],
    ]
    assert len(figure.twin.rows) == 3 + 3 + 2  # together, the node by itself, changes


@pytest.mark.django_db
def test_what_the_table_leaves_out_is_said(monkeypatch):
    monkeypatch.setattr(capacity, "ROWS", 5)
    past = figure_history.a_past("chat-past", team=a_team(), changes=3)
    twin = capacity.figure_of(past).twin
    assert len(twin.rows) == 5
    assert twin.note == "The newest 5 of 8 rows; the drawing shows all."
