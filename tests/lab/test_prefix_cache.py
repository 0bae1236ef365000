from __future__ import annotations

import numpy as np
import pytest

from kvaudit.lab.faults.base import Faults
from kvaudit.lab.model import InductionModel
from kvaudit.lab.pool import KVPool
from kvaudit.lab.prefix_cache import PrefixCache


class Setting:
    """A pool of 16 pages of 4 tokens, a cache, and one request after another."""

    def __init__(self, **options):
        self.pool = KVPool(64, 4, 16)
        self.cache = PrefixCache(self.pool, Faults(), enabled=True, **options)
        self.writer = 0

    def prompt(self, text, salt=""):
        """Serve a prompt; returns how many tokens were found in the cache."""
        self.writer += 1
        tokens = np.frombuffer(text.encode(), np.uint8).astype(np.uint16)
        match = self.cache.match(tokens, salt)
        need = self.pool.pages_for(len(tokens)) - len(match.pages)
        if need > self.pool.free_pages:
            assert self.cache.evict(need - self.pool.free_pages)
        table = np.concatenate([match.pages, self.pool.reserve(need)])
        self.cache.load(match, table[len(match.pages) : len(match.pages) + len(match.host)])
        start = (len(match.pages) + len(match.host)) * 4
        self.pool.write(table, start, InductionModel.keys(tokens)[start:], tokens[start:], self.writer)
        assert bytes(self.pool.tokens[table].reshape(-1)[: len(tokens)].astype(np.uint8)).decode() == text
        self.pool.release(self.cache.insert(tokens, salt, table, match))
        self.cache.unlock(match)
        return start


def test_full_pages_are_found_again_and_the_last_token_never():
    cache = Setting()
    assert [cache.prompt(text) for text in ("abcdefgh", "abcdefgh", "abcdefghi", "abcdXfgh", "Xbcd")] == [
        0,
        4,
        8,
        4,
        0,
    ]


def test_namespaces_never_meet():
    cache = Setting()
    assert [cache.prompt("abcdefghi", salt) for salt in ("A", "B", "A", "B")] == [0, 0, 8, 8]


def test_the_oldest_leaf_goes_first_and_a_beginning_outlives_its_ends():
    cache = Setting()
    cache.prompt("aaaabbbbcccc.")
    cache.prompt("zzzzyyyyxxxx.")
    assert cache.cache.evict(1)
    assert cache.prompt("aaaabbbbcccc.") == 8, "the leaf of the older chain was given up"


def test_locked_pages_are_not_evicted():
    cache = Setting()
    cache.prompt("aaaabbbb.")
    match = cache.cache.match(np.frombuffer(b"aaaabbbb.", np.uint8).astype(np.uint16), "")
    assert not cache.cache.evict(1)
    cache.cache.unlock(match)
    assert cache.cache.evict(2)


@pytest.mark.parametrize(("host_pages", "found"), [(0, 0), (64, 8)])
def test_the_second_tier_brings_evicted_pages_back(host_pages, found):
    cache = Setting(host_pages=host_pages)
    cache.prompt("aaaabbbb.", "A")
    cache.cache.evict(2)
    assert cache.prompt("aaaabbbb.", "B") == 0
    cache.cache.evict(16)
    assert cache.prompt("aaaabbbb.", "A") == found


def test_the_second_tier_forgets_its_oldest():
    cache = Setting(host_pages=2)
    for text in ("aaaabbbb.", "ccccdddd."):
        cache.prompt(text)
        cache.cache.evict(2)
    assert cache.prompt("aaaabbbb.") == 0
    cache.cache.flush()
    assert cache.pool.free_pages == 16
