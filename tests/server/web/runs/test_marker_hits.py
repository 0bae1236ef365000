"""What surfaced: the words first, rounds as the matrix counts them, and why a page is not known."""

from __future__ import annotations

import pytest

from kvaudit.server.web.runs.canary_matrix import matrix_of
from kvaudit.server.web.runs.marker_hits import UNKNOWN_PAGES, hits_of
from tests.server.web.deployment.figure_measures import canary


def nothing(name: str, number: int) -> str:
    return ""


def test_a_round_is_counted_as_in_the_matrix():
    measures = canary(40)
    matrix = matrix_of(measures)
    shown = hits_of(measures, lambda name, number: f"{name}/{number}")
    midpoint = matrix.rows[3]
    leaks = [square.said.partition(":")[0] for square in midpoint.squares if square.leak]
    assert [f"round {hit.round}" for hit in shown.rows] == leaks == ["round 8", "round 20"]
    assert [hit.anchor for hit in shown.rows] == ["midpoint/8", "midpoint/20"]
    assert shown.rows[0].run == "4 of 6"
    assert shown.rows[0].pages == "7, 8, 13,007"
    assert shown.reasons == matrix.reasons == []


@pytest.mark.parametrize(
    ("stored", "why"),
    [({"page_ordinals_unknown": "it held no number"}, "it held no number"), ({}, UNKNOWN_PAGES)],
)
def test_unknown_pages_say_why(stored, why):
    hit = {"cell": "N", "round": 0, "words": "a b c d", "page_ordinals": [], **stored}
    measures = {"matrix": [{"cell": "N", "tokens": 9, "hits": 1, "rounds": ["answered"]}], "hits": [hit]}
    shown = hits_of(measures, nothing)
    assert (shown.rows[0].pages, shown.reasons, shown.paged) == ("", [why], False)
    assert matrix_of(measures).reasons == [why]


def test_a_check_without_rounds_and_pages_has_no_such_columns():
    shown = hits_of({"hits": [{"words": "a b c d", "run": 4, "arm": "burst", "tokens": 512}]}, nothing)
    assert (shown.rounds, shown.paged, shown.rows[0].request) == (False, False, "burst")


@pytest.mark.parametrize("measures", [{}, {"hits": None}, {"hits": []}, {"hits": ["x", 3]}])
def test_nothing_surfaced(measures):
    assert hits_of(measures, nothing) is None


def test_odd_hits_are_shown_as_unknown():
    shown = hits_of(
        {"hits": [{"round": "x", "run": None, "tokens": -1, "page_ordinals": "y"}] * 150}, nothing
    )
    assert (len(shown.rows), shown.left_out) == (100, 50)
    assert (shown.rows[0].round, shown.rows[0].tokens, shown.rows[0].run) == (None, None, "")
