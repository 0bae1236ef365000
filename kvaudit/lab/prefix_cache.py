"""Caches prefixes: full pages of earlier prompts, found again by a chained hash of their tokens.

The chain starts with the *namespace* (the salt): prompts in different namespaces never meet. Pages
in the cache stay reserved in the pool until they are evicted, oldest leaf first. An optional second
tier keeps copies of evicted pages in host memory; a hit there is copied back into fresh pages.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvaudit.lab.faults.base import Faults, strong_hash
from kvaudit.lab.pool import Keys, KVPool, Pages, Tokens


@dataclass(slots=True)
class CachedPage:
    """A page of the cache: its place in the pool, the page before it, its key in the second tier, and its users."""

    page: int
    parent: bytes
    host_key: bytes
    users: int = 0
    children: int = 0


HostPage = tuple[Keys, Tokens, NDArray[np.int32]]
"""A copy of a page in the second tier: keys, tokens, writers."""


@dataclass(slots=True)
class Match:
    """The longest cached prefix: its pages (locked until `PrefixCache.unlock`), and the pages that
    the second tier holds, to be copied into fresh pages by `PrefixCache.load`."""

    hashes: list[bytes]
    pages: Pages
    host: list[HostPage]


class PrefixCache:
    """``enabled`` off: nothing matches and nothing is kept. ``host_pages``: size of the second tier."""

    def __init__(self, pool: KVPool, faults: Faults, *, enabled: bool, host_pages: int = 0) -> None:
        self.pool, self.faults, self.enabled, self.host_pages = pool, faults, enabled, host_pages
        self._pages: OrderedDict[bytes, CachedPage] = OrderedDict()  # oldest first
        self._host: OrderedDict[bytes, HostPage] = OrderedDict()
        self._uncopied: list[CachedPage] = []  # evicted, and not in the second tier yet
        self.hits = self.queries = self.evicted = 0  # tokens

    @property
    def evictable_tokens(self) -> int:
        return sum(not page.users for page in self._pages.values()) * self.pool.page_size

    @property
    def cached_tokens(self) -> int:
        return len(self._pages) * self.pool.page_size

    def chain(self, tokens: Tokens, namespace: str) -> Iterator[bytes]:
        """The hash of every full page of ``tokens``, each over its own and all earlier pages; pages that are
        everybody's come before the namespace."""
        size, shared = self.pool.page_size, self.faults.shared_tokens()
        previous = b"" if shared >= size else namespace.encode()
        for at in range(0, len(tokens) - size + 1, size):
            if at and at <= shared < at + size:
                previous = strong_hash(previous, namespace.encode())
            previous = self.faults.page_hash(previous, tokens[at : at + size].tobytes())
            yield previous

    def match(self, tokens: Tokens, salt: str) -> Match:
        """The cached pages that begin ``tokens``; never the last token, which must be computed."""
        if not self.enabled:
            return Match([], np.empty(0, np.int32), [])
        self._copy_evicted()
        usable = tokens[: len(tokens) - 1]
        self.queries += len(tokens)
        hashes: list[bytes] = []
        for page_hash in self.chain(usable, self.faults.cache_namespace(salt)):
            if page_hash not in self._pages:
                break
            hashes.append(page_hash)
        for page_hash in reversed(hashes):  # the root becomes the youngest: leaves go first
            self._pages[page_hash].users += 1
            self._pages.move_to_end(page_hash)
        host: list[HostPage] = []
        if self.host_pages:
            chain = self.chain(usable, self.faults.tier_namespace(salt))
            for number, key in enumerate(chain):
                if number >= len(hashes):
                    if key not in self._host:
                        break
                    host.append(self._host[key])
                    self._host.move_to_end(key)
        pages = np.fromiter((self._pages[page_hash].page for page_hash in hashes), np.int32, len(hashes))
        self.hits += (len(hashes) + len(host)) * self.pool.page_size
        return Match(hashes, pages, host)

    def load(self, match: Match, pages: Pages) -> None:
        """Copy the second tier's part of ``match`` into ``pages``."""
        for kept, page in zip(match.host, pages, strict=True):
            self.pool.keys[page], self.pool.tokens[page], self.pool.writers[page] = kept
        self.faults.restored(self.pool, pages)

    def unlock(self, match: Match) -> None:
        for page_hash in match.hashes:
            self._pages[page_hash].users -= 1

    def insert(self, tokens: Tokens, salt: str, table: Pages, match: Match) -> list[int]:
        """Give the full pages of a finished prompt to the cache. Returns the pages that the caller
        must release: the ones known already, and the unfinished last one."""
        spare = [int(page) for page in table[len(match.pages) :]]
        if not self.enabled:
            return spare
        kept: set[int] = set()
        chain: list[bytes] = []
        parent = b""
        chains = zip(
            self.chain(tokens, self.faults.cache_namespace(salt)),
            self.chain(tokens, self.faults.tier_namespace(salt)),
            strict=True,
        )
        for number, (key, host_key) in enumerate(chains):
            if key not in self._pages and number >= len(match.pages):
                page = int(table[number])
                self._pages[key] = CachedPage(page, parent, host_key)
                if parent in self._pages:
                    self._pages[parent].children += 1
                kept.add(page)
            parent = key
            chain.append(key)
        for key in reversed(chain):  # the root becomes the youngest
            if key in self._pages:
                self._pages.move_to_end(key)
        return [page for page in spare if page not in kept]

    def evict(self, count: int) -> bool:
        """Free at least ``count`` pages, oldest leaves first; False when too few are unused."""
        self._copy_evicted()
        freed: list[int] = []
        progress = True
        while len(freed) < count and progress:  # one pass does: a chain lies leaf first
            progress = False
            for key in list(self._pages):
                page = self._pages[key]
                if page.users or page.children:
                    continue
                del self._pages[key]
                if page.parent in self._pages:
                    self._pages[page.parent].children -= 1
                self._to_host(page)
                freed.append(page.page)
                progress = True
                if len(freed) == count:
                    break
        self.evicted += len(freed) * self.pool.page_size
        self.pool.release(sorted(freed))
        return len(freed) >= count

    def flush(self) -> None:
        self.evict(len(self._pages))
        self._host.clear()

    def _to_host(self, kept: CachedPage) -> None:
        if self.host_pages:
            self._uncopied.append(kept)
        if self.faults.copies_before_reuse():
            self._copy_evicted()

    def _copy_evicted(self) -> None:
        """Copy into the second tier, as they are now, the pages that still wait for it."""
        for kept in self._uncopied:
            page, pool = kept.page, self.pool
            self._host[kept.host_key] = (
                pool.keys[page].copy(),
                pool.tokens[page].copy(),
                pool.writers[page].copy(),
            )
            self._host.move_to_end(kept.host_key)
        self._uncopied.clear()
        while len(self._host) > self.host_pages:
            self._host.popitem(last=False)
