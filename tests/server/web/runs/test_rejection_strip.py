"""The boundary strip: lengths in order, N and C between them, one shape per request."""

from __future__ import annotations

import pytest

from kvaudit.server.web.runs import rejection_strip
from kvaudit.server.web.runs.outcome_icons import ANSWERED, FAULTY, REFUSED, VOID, WRONG
from tests.server.web.deployment.figure_measures import REJECTION, C, N, rung


def drawn(*rungs, limit=N, context=C):
    return rejection_strip.strip_of(
        {"rungs": list(rungs), "first_rejected_tokens": limit, "context_tokens": context}
    )


def shapes(one):
    return [each.shape for each in one.placed]


def test_lengths_stand_in_order_with_the_limit_and_the_context_between_them():
    strip = rejection_strip.strip_of(REJECTION)
    assert [one.name for one in strip.rungs] == [
        "N-64", "N-2", "N-1", "N", "N+1", "N+page", "midpoint", "C-1", "C", "C+1",
    ]  # fmt: skip
    assert [(line.name, line.x // rejection_strip.COLUMN) for line in strip.lines] == [("N", 3), ("C", 8)]
    assert [one.zone for one in strip.rungs] == ["below"] * 3 + ["refuse"] * 5 + ["beyond"] * 2


def test_every_request_has_its_shape_worst_lowest():
    strip = drawn(rung("N", N, 5, refused=1, without_nonce=2, failed=1, void=2))
    assert shapes(strip.rungs[0]) == [WRONG, WRONG, FAULTY, REFUSED, VOID]
    heights = [each.y for each in strip.rungs[0].placed]
    assert heights == sorted(heights, reverse=True)
    assert all(0 < y < strip.foot for y in heights)


def test_many_requests_of_a_kind_become_one_shape_with_a_number():
    (one,) = drawn(rung("midpoint", 900_000, 9, without_nonce=8, accepted=1)).rungs
    assert [(each.shape, each.times) for each in one.placed] == [(WRONG, 8), (ANSWERED, 1)]


def test_trials_that_came_to_nothing_else_are_void():
    (one,) = drawn(rung("N", N, 3, refused=1)).rungs
    assert one.counts["void"] == 2


def test_without_a_limit_nothing_is_said_to_be_right_or_wrong():
    strip = drawn(rung("search 512", 512, accepted=1), limit=None, context=None)
    assert [one.zone for one in strip.rungs] == [""]
    assert strip.lines == []


def test_the_sentence_says_what_is_drawn():
    said = rejection_strip.strip_of(REJECTION).sentence
    assert "N is 681,274 tokens" in said
    assert "N, 681,274 tokens: 2 without nonce, 1 refused" in said


@pytest.mark.parametrize(
    "measures",
    [
        {},
        {"rungs": None},
        {"rungs": []},
        {"rungs": [None, 1, {"tokens": "x"}, {"name": "N"}]},
        {"rungs": {"a": 1}},
    ],
)
def test_without_a_length_there_is_no_strip(measures):
    assert rejection_strip.strip_of(measures) is None


def test_odd_counts_do_not_break_it():
    (one,) = drawn({"name": None, "tokens": 5, "trials": "x", "refused": -3, "status": "odd"}).rungs
    assert (one.name, one.placed, one.status) == ("", [], None)
