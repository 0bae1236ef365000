"""Whose text the answers were, drawn from a stored result that may say anything."""

from __future__ import annotations

from typing import Any

import pytest
from django.template.loader import render_to_string

from kvaudit.server.web.runs.provenance import provenance_of

STORED = {
    "by_mode": {
        "chat": {
            "answers": 60,
            "own": 41,
            "others": 2,
            "foreign_words": 7,
            "controls": 40,
            "controls_foreign_words": 1,
        }
    },
    "traces": [
        {
            "kind": "marker",
            "where": "headers",
            "planted_by": "tenant-b",
            "read_by": "tenant-a",
            "words": "garden harbor <b>island</b> jacket",
            "tokens": 8058,
            "verified": True,
        },
        {"kind": "nonce", "where": "text", "words": "pomfret", "tokens": None},
    ],
}


def test_counts_and_traces_are_shown_and_escaped() -> None:
    whose = provenance_of({"provenance": STORED})
    assert whose is not None
    assert whose.found
    html = render_to_string("runs/provenance.html", {"whose": whose})
    assert "<details open>" in html
    assert "7 of 60" in html
    assert "1 of 40" in html
    assert "&lt;b&gt;" in html
    assert "<b>island" not in html
    assert html.count("decides nothing alone") == 1


def test_a_clean_result_keeps_it_closed() -> None:
    whose = provenance_of({"provenance": {"by_mode": {"chat": {"answers": 60, "own": 60}}, "traces": []}})
    assert whose is not None
    assert "<details>" in render_to_string("runs/provenance.html", {"whose": whose})


@pytest.mark.parametrize(
    "stored",
    [
        None,
        7,
        [],
        {},
        {"by_mode": 3, "traces": "x"},
        {"by_mode": {"chat": 4}},
        {"by_mode": {"chat": {"own": "many"}}},
    ],
)
def test_nothing_is_shown_of_what_says_nothing(stored: Any) -> None:
    assert provenance_of({"provenance": stored}) is None
    assert provenance_of({}) is None


def test_answers_of_unknown_origin_show_lengths_and_keyed_hashes_alone():
    stored = {
        "provenance": {"by_mode": {"chat with text": {"answers": 60, "own": 50, "foreign_words": 5}}},
        "unknown_answers": [
            {"tokens": 4_097, "cell": "edge", "round": 11, "characters": 310, "hmac": "ab" * 32},
            {"hmac": None},
            3,
        ],
    }
    known, odd = provenance_of(stored).unknown
    assert (known.request, known.tokens, known.round, known.characters) == ("edge", 4_097, 12, 310)
    assert (odd.round, odd.hmac) == (None, "")
    page = render_to_string("runs/provenance.html", {"whose": provenance_of(stored)})
    assert "ab" * 32 in page
    assert "4,097" in page
