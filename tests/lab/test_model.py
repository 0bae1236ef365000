"""The copier: exact against a plain reference, in place or scattered, and never emitting special ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.lab.model import BETA, DECAY, PAST, InductionModel, KVSequence
from kvaudit.lab.pool import NEVER, KVPool
from tests.lab.asking import AMBER, frames, nonce


def _encode(text):
    return np.frombuffer(text.encode(), np.uint8).astype(np.uint16)


def _sequence(tokens, table=None, page=16, room=64):
    pool = KVPool(len(tokens) + room + page, page, PAST)
    table = pool.reserve(pool.pages) if table is None else table(pool)
    pool.write(table, 0, InductionModel.keys(tokens), tokens, 1)
    return KVSequence(pool, table, len(tokens), InductionModel.state(tokens), 1)


def _generate(sequence, count):
    model, made = InductionModel(), []
    for _ in range(count):
        made.append(model.next_token(sequence))
        model.step(sequence, made[-1])
    return bytes(made).decode()


def _reference(keys, values, context):
    """The definition, written out: score = sum of 12 * 0.8^j where key and query agree, softmax, argmax."""
    weights = (DECAY ** np.arange(PAST)) * BETA
    query = np.array(context[::-1][:PAST], np.uint16)
    score = (keys[:, : len(query)] == query) @ weights[: len(query)]
    mass = np.exp(score - score.max())
    return int(np.bincount(values, weights=mass, minlength=258)[:256].argmax())


@given(st.lists(st.integers(97, 103), min_size=1, max_size=120), st.integers(1, 9))
def test_next_token_is_the_definition(ids, page):
    tokens = np.array(ids, np.uint16)
    sequence = _sequence(tokens, page=page)
    keys = InductionModel.keys(tokens)
    expected = _reference(keys, tokens, sequence.context)
    assert InductionModel().next_token(sequence) == expected


def test_a_place_that_differs_in_the_last_two_ids_alone_outweighs_one_that_has_nothing_but_them():
    past = "abcdefghijklmnop"
    assert _generate(_sequence(_encode(f"{past[:-2]}xy1 zzop2 {past}")), 1) == "1"


@pytest.mark.parametrize("length", [300, 5_000, 60_000])
def test_it_finds_its_nonce_at_any_length(length):
    sequence = _sequence(_encode(frames(AMBER, length, nonce("pebble"))))
    assert _generate(sequence, 7) == " pebble"


def test_scattered_pages_give_the_same_answer_as_pages_in_a_row():
    tokens = _encode(frames(AMBER, 3_000, nonce("pebble")))

    def shuffled(pool):
        return np.random.default_rng(1).permutation(pool.reserve(pool.pages)).astype(np.int32)

    assert _generate(_sequence(tokens, shuffled), 40) == _generate(_sequence(tokens), 40)


def test_a_key_is_the_sixteen_ids_before_a_token():
    keys = InductionModel.keys(np.arange(20, dtype=np.uint16), before=[200])
    assert keys[0].tolist() == [200] + [NEVER] * 15
    assert keys[18].tolist() == list(range(17, 1, -1))


def test_the_state_after_a_placeholder_is_empty():
    assert InductionModel.state(np.array([0], np.uint16)) == [256]
    assert InductionModel.state(_encode("ab")) == [256, 97, 98]


def test_unwritten_slots_are_never_emitted():
    pool = KVPool(64, 16, PAST)
    sequence = KVSequence(pool, pool.reserve(4), 64, [256], 1)
    assert 0 <= InductionModel().next_token(sequence) < 256


def test_temperature_draws_and_zero_does_not():
    tokens = _encode("1xa 2xb 3xc 4xd 9x")
    greedy = {InductionModel(seed).next_token(_sequence(tokens)) for seed in range(20)}
    drawn = {InductionModel(seed).next_token(_sequence(tokens), 1.0) for seed in range(40)}
    assert len(greedy) == 1
    assert len(drawn) > 1
