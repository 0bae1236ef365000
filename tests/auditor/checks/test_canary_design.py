"""What a run draws: lengths of every kind, ways, tenants and tails evenly over each other, time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise

import pytest

from kvaudit.auditor.checks.canary.asking import Cell
from kvaudit.auditor.checks.canary.design import (
    NONCE,
    PHRASE,
    WINDOW,
    draw_waits,
    lay_out,
)
from kvaudit.auditor.checks.canary.sender import cells
from kvaudit.auditor.checks.canary.strata import (
    BOUNDARY,
    EDGE,
    LOG,
    UNIFORM,
    DrawnLength,
    Span,
    counts,
    draw_lengths,
)
from kvaudit.auditor.checks.prober_protocol import Limits
from kvaudit.auditor.checks.ways import LONGEST_TEXT
from kvaudit.auditor.engines.completion import Mode
from kvaudit.auditor.text.markers import seeded

SPAN = Span(130_900, 131_000, 131_071, 16, (8_192,))
MODES = (Mode.COMPLETION_IDS, Mode.CHAT_TEXT, Mode.COMPLETION_TEXT)


@pytest.mark.parametrize(
    ("rounds", "each"),
    [(60, (6, 15, 30, 9)), (20, (2, 5, 10, 3)), (21, (2, 5, 11, 3)), (1, (0, 0, 1, 0)), (0, (0, 0, 0, 0))],
)
def test_strata_keep_their_proportions(rounds: int, each: tuple[int, ...]) -> None:
    found = counts(rounds)
    assert tuple(found[name] for name in (BOUNDARY, EDGE, LOG, UNIFORM)) == each
    assert len(draw_lengths(seeded(1), rounds, SPAN)) == rounds


def test_lengths_are_of_every_kind_and_differ_from_night_to_night() -> None:
    nights = [draw_lengths(seeded(seed), 60, SPAN) for seed in range(20)]
    drawn = [one for night in nights for one in night]
    assert {one.tokens for one in drawn if one.stratum == BOUNDARY} == {130_900, 131_000, 131_071}
    assert nights[0][0].stratum == BOUNDARY
    assert all(128 <= one.tokens <= 131_071 for one in drawn)
    assert {one.tokens % 16 for one in nights[0] if one.stratum in (LOG, UNIFORM)} == set(range(16))
    assert len({one.tokens for one in drawn if one.stratum == LOG}) > 450
    chunk = {one.tokens - 8_192 for one in drawn} & {-1, 0, 1}
    assert chunk
    assert [one.tokens for one in nights[0]] != [one.tokens for one in nights[1]]


@pytest.mark.parametrize(
    ("hole", "nights"),
    [
        (lambda length: length > 2_000 and length % 16 <= 8, 1),
        (lambda length: 3_200 <= length <= 4_050, 5),
        (lambda length: length % 1_024 == 1, 12),
        (lambda length: length == 131_071, 1),
        (lambda length: 500 <= length <= 520, 12),
        (lambda length: length >= 127_139, 1),
    ],
)
def test_a_hole_of_any_kind_is_met_within_few_nights(hole, nights) -> None:
    """As simulated for the rules; of a hundred starts 95."""
    late = 0
    for seed in range(100):
        draw = seeded(seed)
        late += not any(hole(one.tokens) for _ in range(nights) for one in draw_lengths(draw, 60, SPAN))
    assert late <= 5


@pytest.mark.parametrize("span", [Span(100, 100, 100, 16), Span(5_162, 5_321, 5_321, 64), Span(1, 1, 1, 1)])
def test_no_length_is_beyond_what_may_be_sent(span: Span) -> None:
    drawn = draw_lengths(seeded(4), 60, span)
    assert all(1 <= one.tokens <= span.top for one in drawn)


@pytest.mark.parametrize("rounds", [20, 60])
@pytest.mark.parametrize("tenants", [("a", "b"), ("a", "b", "c")])
def test_every_two_levels_meet_about_equally_often(rounds: int, tenants: tuple[str, ...]) -> None:
    lengths = [DrawnLength(LOG, 4_000)] * rounds
    planned = lay_out(seeded(7), lengths, MODES, tenants)
    levels = [
        (one.way.mode, one.way.stream, (one.victim, one.reader), NONCE if one.tail == NONCE else PHRASE)
        for one in planned
    ]
    for first, second in combinations(range(4), 2):
        met = Counter((one[first], one[second]) for one in levels)
        kinds = len({one[first] for one in levels}) * len({one[second] for one in levels})
        assert len(met) == kinds
        assert max(met.values()) - min(met.values()) <= 3
    assert {one.victim for one in planned} == {one.reader for one in planned} == set(tenants)
    assert all(one.victim != one.reader for one in planned)
    assert {one.tail for one in planned} == {NONCE, PHRASE, WINDOW}


def test_each_kind_of_request_has_either_tail() -> None:
    planned = lay_out(seeded(7), [DrawnLength(LOG, 4_000)] * 20, MODES, ("a", "b"))
    for at in range(6):
        tails = Counter(one.tail_of(at) == NONCE for one in planned)
        assert tails[True] == tails[False] == 10


def test_what_is_too_long_to_count_as_text_goes_as_token_ids() -> None:
    long = lay_out(seeded(7), [DrawnLength(LOG, LONGEST_TEXT + 1)] * 20, MODES, ("a", "b"))
    assert {one.way.mode for one in long} == {Mode.COMPLETION_IDS}
    only = lay_out(seeded(7), [DrawnLength(LOG, LONGEST_TEXT + 1)] * 4, (Mode.CHAT_TEXT,), ("a", "b"))
    assert {one.way.mode for one in only} == {Mode.CHAT_TEXT}


@pytest.mark.parametrize("idle", [0.0, 0.5, 60.0, 720.0])
def test_waits_keep_within_their_allowance_and_before_one_round_of_five(idle: float) -> None:
    for seed in range(20):
        waits = draw_waits(seeded(seed), 60, idle)
        assert sum(waits) <= idle + 1e-9
        assert len([one for one in waits if one > 1.0]) <= 12
        assert len({round(one, 6) for one in waits}) > 20 or not idle


LONG = Span(1_048_000, 1_048_400, 1_048_576 - 6, 64, (8_192,))


def test_a_night_of_a_million_tokens_is_a_chain() -> None:
    """Lengths fall, so that each prompt covers what the next may read; 6.8 N in all instead of 80."""
    n, spent = LONG.top + 1, []
    limits = Limits(n, n + 6, 2 * n, 64, True)
    for night in range(8):
        lengths = draw_lengths(seeded(night), LONG.planned, LONG)
        rounds = lay_out(seeded(night), lengths, MODES, ("a", "b"), chained=True)
        assert len(rounds) == 47
        assert [each.length.tokens for each in rounds] == sorted(
            (one.tokens for one in lengths), reverse=True
        )
        assert all(after.victim == before.reader for before, after in pairwise(rounds))
        assert NONCE not in {each.tail for each in rounds[:2]}
        assert {each.tail for each in rounds[2:]} >= {PHRASE, NONCE}
        assert {each.length.stratum for each in rounds} >= {BOUNDARY, EDGE, LOG}
        orders = [
            cells(limits, True, Cell(each.length.stratum, each.length.tokens, drawn=True), chained=True)
            for each in rounds
        ]
        assert [len(order) for order in orders[:3]] == [
            5,
            5,
            1,
        ]  # victim, N, N+1, the middle, and what may read it
        spent.append(sum(cell.tokens for order in orders for cell in order if not cell.above) / n)
    assert 6.4 < sum(spent) / len(spent) < 7.2


def test_less_than_a_whole_chain_keeps_its_short_end() -> None:
    lengths = draw_lengths(seeded(1), 30, LONG)
    assert len(lengths) == 30
    assert max(one.tokens for one in lengths) <= LONG.top / 8


def test_rounds_that_qualify_a_build_are_at_its_boundary_and_ask_for_phrases() -> None:
    """Before it takes traffic: of 60 rounds 54 at the boundary, four of five where a phrase has room."""
    span = replace(SPAN, qualifying=True)
    lengths = draw_lengths(seeded(3), span.planned, span)
    at = [one.tokens for one in lengths if one.stratum == BOUNDARY]
    assert len(at) == 54
    assert sum(tokens < span.top for tokens in at) >= 40
    rounds = lay_out(seeded(3), lengths, MODES, ("a", "b"), qualifying=True)
    phrases = sum(each.tail != NONCE for each in rounds)
    assert 36 <= phrases <= 44
    assert {each.tail for each in rounds} == {NONCE, PHRASE, WINDOW}
