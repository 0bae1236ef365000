from __future__ import annotations

import numpy as np
import pytest

from kvaudit.lab.model import InductionModel
from kvaudit.lab.pool import NOBODY, UNWRITTEN, KVPool, PageError


def _write(pool, pages, text, writer):
    tokens = np.frombuffer(text, np.uint8).astype(np.uint16)
    pool.write(pages, 0, InductionModel.keys(tokens), tokens, writer)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("lifo", [3, 4, 5, 6, 0, 1, 2, 7]),
        ("fifo", [7, 0, 1, 2, 3, 4, 5, 6]),
        ("vllm-lru", [7, 2, 1, 0, 6, 5, 4, 3]),
        ("sglang-pd", [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_the_free_list_hands_out_what_its_order_says(order, expected):
    pool = KVPool(32, 4, 16, order)
    first, second = pool.reserve(3), pool.reserve(4)
    pool.release(first)
    pool.release(second)
    assert pool.reserve(8).tolist() == expected
    assert pool.free_pages == 0
    assert pool.used_tokens == 32


def test_prefill_and_decode_of_sglang_hand_out_no_freed_page_while_others_are_free():
    pool = KVPool(32, 4, 16, "sglang-pd")
    pool.release(pool.reserve(3))
    assert pool.reserve(5).tolist() == [3, 4, 5, 6, 7], "the freed ones wait"
    assert pool.free_pages == 3
    assert pool.reserve(4) is None
    assert pool.reserve(3).tolist() == [0, 1, 2]


def test_released_pages_keep_their_contents_and_writer():
    pool = KVPool(16, 4, 16)
    pages = pool.reserve(2)
    _write(pool, pages, b"abcdef", 7)
    pool.release(pages)
    again = pool.reserve(4)
    assert pool.writers_of(again, 16).tolist() == [7] * 6 + [NOBODY] * 10
    assert bytes(pool.tokens[again].reshape(-1)[:6].astype(np.uint8)) == b"abcdef"
    assert pool.tokens[again].reshape(-1)[6] == UNWRITTEN


def test_reserve_gives_all_or_nothing():
    pool = KVPool(16, 4, 16)
    assert pool.reserve(5) is None
    assert pool.free_pages == 4


@pytest.mark.parametrize("bad", [[0, 1], [3]])
def test_a_page_cannot_be_released_twice(bad):
    pool = KVPool(16, 4, 16)
    pool.release(pool.reserve(2))
    with pytest.raises(PageError):
        pool.release(bad)


def test_a_copy_takes_the_writer_along():
    source, target = KVPool(16, 4, 16), KVPool(16, 4, 16)
    pages = source.reserve(2)
    _write(source, pages, b"abcdefgh", 3)
    target.copy_in(source, pages, np.array([3, 1], np.int32))
    assert target.writers_of(np.array([3, 1], np.int32), 8).tolist() == [3] * 8
