"""Evidence by length and round; what older releases left stays a plain list."""

from __future__ import annotations

from typing import Any

from kvaudit.server.web.runs.evidence_list import evidence_of


def piece(kind: str, number: int, said: str = "") -> dict[str, Any]:
    return {"kind": kind, "sha256": f"{number:064x}", "source": f"POST /v1/completions{said}"}


def request(name: str, number: int, ended: str, at: int, tokens: int = 8_187) -> list[dict[str, Any]]:
    said = f", {name} ({tokens:,} tokens), tenant b, round {number}, {ended}"
    return [piece("request", at, said), piece("response", at + 1, said), piece("sealed", at + 2, said)]


def test_a_request_is_one_row_of_its_length_in_order_of_rounds():
    folder = "/runs/7/evidence/"
    stored = [
        *request("N", 2, "refused", 10, 8_186),
        *request("N+1", 1, "without nonce", 20),
        *request("N", 1, "busy", 30, 8_186),
    ]
    found = evidence_of(stored, {f"{21:064x}"}, 7, folder)
    assert [(one.name, one.tokens, one.endings) for one in found.lengths] == [
        ("N", "8,186", "1 busy, 1 refused"),
        ("N+1", "8,187", "1 without nonce"),
    ]
    assert [one.asked.round for one in found.lengths[0].sent] == [1, 2]
    (only,) = found.lengths[1].sent
    request_cell, answer_cell, text_cell = only.columns
    assert f'<a class="digest digest-cut" href="{folder}{21:064x}/">{21:064x}</a>' == answer_cell
    for cell in (request_cell, text_cell):
        assert "href" not in cell
        assert "digest only" in cell
    assert (found.requests, found.pieces, found.others) == (3, 9, [])


def test_a_round_asked_several_times_keeps_every_row_and_leads_to_the_first():
    found = evidence_of(
        request("midpoint", 8, "answered", 10) + request("midpoint", 8, "answered", 20), set(), 7
    )
    first, second = found.lengths[0].sent
    assert (first.anchor, second.anchor) == (found.at("midpoint", 8), "")
    assert found.at("midpoint") == found.lengths[0].anchor != first.anchor
    assert found.at("midpoint", 9) == found.at("N") == ""


def test_results_on_one_page_do_not_share_fragments():
    one, other = (evidence_of(request("N", 1, "refused", 10), set(), key) for key in (7, 8))
    assert one.at("N", 1) != other.at("N", 1)


def test_what_belongs_to_no_request_stays_a_list():
    stored = [piece("request", 1), piece("response", 2), {"kind": "reading", "sha256": "x"}, None, "odd", {}]
    found = evidence_of(stored, {f"{1:064x}"}, 7)
    assert found.lengths == []
    assert [(other.kind, other.kept) for other in found.others] == [
        ("request", True), ("response", False), ("reading", False), ("", False),
    ]  # fmt: skip


def test_lengths_that_differ_under_one_name_say_their_range():
    found = evidence_of(
        request("fit", 1, "answered", 1, 512) + request("fit", 1, "answered", 9, 8_026), set(), 7
    )
    assert found.lengths[0].tokens == "512 to 8,026"


def test_a_hostile_digest_is_text_and_no_address():
    bad = '"><script>alert(1)</script>\u202e'
    (piece_shown,) = evidence_of([{"kind": "reading", "sha256": bad, "source": "x"}], {bad}, 7, "/e/").others
    assert "<script" not in piece_shown.shown
    assert "href" not in piece_shown.shown
    assert "[U+202E]" in piece_shown.shown
