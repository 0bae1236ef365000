"""Keeps the paged KV pool: one array of fixed-size pages, a free list, and no zeroing.

A page keeps what was written into it until somebody writes over it. That is how the real engines
work (zeroing costs memory bandwidth), and it is why a request that attends over a page it did not
write reads somebody else's text. Every slot carries a *writer* tag, the ticket of the request on
whose behalf it was written; the engine never looks at it, only traces and tests do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kvaudit.lab.config import FreeList

NEVER = 65535
"""Key id of a slot that nobody wrote: it agrees with no query."""
UNWRITTEN = 257
"""Token id of a slot that nobody wrote. Ids from 256 on are never emitted."""
NOBODY = -1

Pages = NDArray[np.int32]
Keys = NDArray[np.uint16]
Tokens = NDArray[np.uint16]


class PageError(RuntimeError):
    """The pool's books are wrong: a page was freed twice or was never reserved."""


class KVPool:
    """``tokens`` slots in pages of ``page_size``; a slot holds the ``past`` ids before it (the key),
    its own id (the value) and its writer.

    ``order`` says which free page goes out next, and so whose text a stale page holds:

    - "lifo": the one released last, by the next request. A unified SGLang with pages of more than one
      token does this (allocator.py: freed pages go before the free ones), and nobody else; the lab's
      default, since it is the worst case.
    - "fifo": the one released first, in the order in which a request held them. SGLang with pages of
      one token appends.
    - "sglang-pd": the lowest number. In SGLang's prefill and decode roles (``need_sort``) freed pages wait
      in a list of their own until the free ones do not suffice; then both are merged and sorted.
    - "vllm-lru": the one released first, a request's last page before its first (block_pool.py: a queue, to
      which blocks return tail first).
    """

    def __init__(self, tokens: int, page_size: int, past: int, order: FreeList = "lifo") -> None:
        self.page_size = page_size
        self.pages = tokens // page_size
        self.order = order
        self.keys = np.full((self.pages, page_size, past), NEVER, np.uint16)
        self.tokens = np.full((self.pages, page_size), UNWRITTEN, np.uint16)
        self.writers = np.full((self.pages, page_size), NOBODY, np.int32)
        self._free = deque(range(self.pages))
        self._deferred: list[int] = []  # "sglang-pd": freed, and not handed out before the free ones run dry
        self._reserved = np.zeros(self.pages, bool)

    @property
    def capacity(self) -> int:
        """Slots, in tokens."""
        return self.pages * self.page_size

    @property
    def free_pages(self) -> int:
        return len(self._free) + len(self._deferred)

    @property
    def used_tokens(self) -> int:
        return (self.pages - self.free_pages) * self.page_size

    def pages_for(self, tokens: int) -> int:
        """How many pages hold ``tokens`` slots."""
        return -(-tokens // self.page_size)

    def reserve(self, count: int) -> Pages | None:
        """``count`` pages from the free list with whatever they contain; None when there are fewer."""
        if count > self.free_pages:
            return None
        if count > len(self._free):
            self._free = deque(sorted([*self._free, *self._deferred]))
            self._deferred.clear()
        pages = np.fromiter((self._free.popleft() for _ in range(count)), np.int32, count)
        self._reserved[pages] = True
        return pages

    def release(self, pages: Iterable[int]) -> None:
        """Back to the free list; the contents stay. PageError when a page is not reserved."""
        given = np.asarray(list(pages), np.int32)
        if not self._reserved[given].all():
            raise PageError(f"pages {given[~self._reserved[given]][:5].tolist()} were released twice")
        self._reserved[given] = False
        listed = given.tolist()
        if self.order == "lifo":
            self._free.extendleft(reversed(listed))
        elif self.order == "sglang-pd":
            self._deferred += listed
        else:
            self._free.extend(reversed(listed) if self.order == "vllm-lru" else listed)

    def write(self, table: Pages, start: int, keys: Keys, tokens: Tokens, writer: int) -> None:
        """Write ``tokens`` and their ``keys`` at positions start.. of the sequence whose pages are
        ``table``."""
        positions = np.arange(start, start + len(tokens))
        pages, slots = table[positions // self.page_size], positions % self.page_size
        self.keys[pages, slots] = keys
        self.tokens[pages, slots] = tokens
        self.writers[pages, slots] = writer

    def copy_in(self, source: KVPool, from_pages: Pages, to_pages: Pages) -> None:
        """What a transfer does: whole pages from another pool, writer tags included."""
        self.keys[to_pages] = source.keys[from_pages]
        self.tokens[to_pages] = source.tokens[from_pages]
        self.writers[to_pages] = source.writers[from_pages]

    def writers_of(self, table: Pages, length: int) -> NDArray[np.int32]:
        """Who wrote the first ``length`` slots of a sequence: one ticket per slot (tests, traces)."""
        flat: NDArray[np.int32] = self.writers[table[: self.pages_for(length)]].reshape(-1)[:length]
        return flat
