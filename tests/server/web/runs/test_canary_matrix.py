"""The canary matrix: which request of which round leaked, and which pages."""

from __future__ import annotations

import pytest
from django.template.loader import render_to_string

from kvaudit.server.web.runs.canary_matrix import matrix_of
from kvaudit.server.web.runs.outcome_icons import ANSWERED, LEAKED, REFUSED, UNASKED, VOID, WRONG
from tests.server.web.deployment.figure_measures import canary


def test_rows_are_lengths_and_columns_rounds():
    matrix = matrix_of(canary(40))
    assert [row.cell for row in matrix.rows] == ["victim", "N", "N+1", "midpoint", "control", "longest"]
    assert matrix.rounds == 40
    assert [number for _, number in matrix.ticks] == [1, 11, 21, 31]
    victim, refused, _, midpoint, *_ = matrix.rows
    assert victim.squares[0].shape is ANSWERED
    assert refused.squares[0].shape is REFUSED
    assert victim.squares[5].shape is VOID  # busy
    assert midpoint.squares[0].shape is WRONG
    assert [at for at, square in enumerate(midpoint.squares) if square.leak] == [7, 19]
    assert midpoint.squares[7].shape is LEAKED
    assert (
        midpoint.squares[7].said
        == "round 8: another request's marker surfaced in the answer, about page 7, 8, 13007"
    )


def test_the_table_counts_what_the_drawing_shows():
    matrix = matrix_of(canary(40))
    midpoint = matrix.rows[3]
    assert midpoint.asked == 40
    assert dict(zip(matrix.outcomes, midpoint.counts, strict=True))["without nonce"] == 39
    assert (midpoint.hits, midpoint.pages) == (2, [7, 8, 19, 20, 13_007, 13_019])
    assert (
        matrix.sentence == "6 lengths in 40 rounds; markers of other requests surfaced 2 times: midpoint (2)"
    )


def test_a_result_that_does_not_say_its_rounds_is_a_table_only():
    measures = canary(30)
    for row in measures["matrix"]:
        del row["rounds"]
    matrix = matrix_of(measures)
    assert matrix.rounds == 0
    assert [len(row.squares) for row in matrix.rows] == [0] * 6
    assert matrix.rows[3].hits == 2


def test_a_round_that_was_not_asked_is_empty():
    matrix = matrix_of(
        {"matrix": [{"cell": "N", "tokens": 9, "rounds": [None, "refused"], "outcomes": {"refused": 1}}]}
    )
    assert [square.shape for square in matrix.rows[0].squares] == [UNASKED, REFUSED]


@pytest.mark.parametrize("measures", [{}, {"matrix": None}, {"matrix": []}, {"matrix": [1, "x"]}])
def test_nothing_asked_is_no_matrix(measures):
    assert matrix_of(measures) is None


def test_odd_measures_do_not_break_it():
    matrix = matrix_of(
        {"matrix": [{"cell": None, "rounds": "x", "outcomes": [1], "hits": "y"}], "hits": [{"round": "z"}]}
    )
    (row,) = matrix.rows
    assert (row.cell, row.tokens, row.asked, row.hits) == ("", None, 0, 0)


def test_a_run_shows_its_strata_and_the_span_of_drawn_lengths():
    stratum = {
        "route": "chat with text, whole", "tail": "phrase", "asked": 3, "accepted": 3, "read": 2, "missed": 1, "hits": 0
    }  # fmt: skip
    row = {
        "cell": "log-uniform", "tokens": 4_900, "shortest": 128, "outcomes": {"answered": 3}, "rounds": ["answered"],
        "strata": [stratum, 7],
    }  # fmt: skip
    matrix = matrix_of({"matrix": [row, {**row, "cell": "N", "shortest": 4_900, "strata": None}]})
    assert [line.shortest for line in matrix.rows] == [128, None]
    (one,) = matrix.strata
    assert (one.cell, one.route, one.read, one.missed) == ("log-uniform", "chat with text, whole", 2, 1)
    page = render_to_string("runs/matrix.html", {"matrix": matrix})
    assert "128–4,900" in page
    assert "chat with text, whole" in page
