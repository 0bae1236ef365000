"""Computes the model: an exact induction copier, an attention head that continues what its context makes
likely.

The key of a position is the ids of the 16 tokens before it, the value is its own token; the query
is the last 16 tokens. Score = sum of 0.8^j where key and query agree, softmax with inverse
temperature 12, argmax over the summed weights. It finds the place whose past looks like ours and
copies what came next: nonces and needles of its own prompt, or, given stale pages, another
tenant's text. Nothing about a leak is written here.

A score depends only on *which* of the 16 ids agree, so the softmax weights of all 65,536 patterns
are one table, and attention is: compare, pack the bits, look up, sum by token. No BLAS, no copy.

The last two ids weigh most: a slot where neither agrees has a weight below exp(-21). So the greedy token is first
looked for among the slots where one of them does, a few in a hundred; all slots are scored only where those that
were left out could change the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kvaudit.lab.pool import NEVER, Keys, KVPool, Pages, Tokens

PAST = 16
"""Tokens of past in a key."""
BETA = 12.0
DECAY = 0.8
BOS = 256
PLACEHOLDER = 0
"""The id that a rejected prompt is replaced by. It has no embedding: it leaves no trace in the
state, so the query after it is [256, first token]."""
NO_AGREEMENT = 65534
"""A query id that agrees with no key, for the places before the beginning of the text."""

_BLOCK = 16_384  # slots scored at once: their keys (512 KiB) stay in the cache
_LONG_RUN = 512  # slots in a row from which scoring in place beats gathering them
_FAR = 0xFFFC  # the pattern of most weight in which the last two ids do not agree


@lru_cache(maxsize=1)
def _pattern_weights() -> NDArray[np.float64]:
    """exp(score - highest score) for each pattern of agreements; bit j = the j-th last id agrees."""
    patterns = np.arange(1 << PAST)
    score = np.zeros(len(patterns))
    for j in range(PAST):
        score += BETA * DECAY**j * ((patterns >> j) & 1)
    weights: NDArray[np.float64] = np.exp(score - score.max())
    return weights


@dataclass(slots=True)
class KVSequence:
    """What decoding needs of one request: its pages, how many slots are filled, and its state."""

    pool: KVPool
    table: Pages
    length: int
    context: list[int]
    writer: int
    _plan: tuple[int, list[tuple[int, int]], Pages] | None = field(default=None, repr=False)

    def plan(self) -> tuple[list[tuple[int, int]], Pages]:
        """Full pages as runs of slots [lo, hi) that can be scored in place, and the scattered rest."""
        full = self.length // self.pool.page_size
        if self._plan is None or self._plan[0] != full:
            pages = self.table[:full]
            edges = np.flatnonzero(np.diff(pages) != 1) + 1
            starts, ends = np.r_[0, edges], np.r_[edges, full]
            size = self.pool.page_size
            long = (ends - starts) * size >= _LONG_RUN
            runs = [
                (int(pages[a]) * size, (int(pages[a]) + int(b - a)) * size)
                for a, b in zip(starts[long], ends[long], strict=True)
            ]
            scattered = [pages[a:b] for a, b in zip(starts[~long], ends[~long], strict=True)]
            rest = np.concatenate(scattered) if scattered else pages[:0]
            self._plan = (full, runs, rest)
        return self._plan[1], self._plan[2]


class InductionModel:
    """See the module. ``temperature`` 0 is greedy; above it, tokens are drawn with ``seed``."""

    def __init__(self, seed: int = 0) -> None:
        self._weights = _pattern_weights()
        self._random = np.random.default_rng(seed)

    @staticmethod
    def keys(tokens: Tokens, before: Sequence[int] | Tokens = ()) -> Keys:
        """Keys of ``tokens`` that follow ``before``: array (len(tokens), 16) of the ids before each."""
        past = np.full(PAST, NEVER, np.uint16)
        tail = np.asarray(before, np.uint16)[-PAST:]
        past[PAST - len(tail) :] = tail
        padded = np.concatenate([past, np.asarray(tokens, np.uint16)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, PAST)
        return np.ascontiguousarray(windows[: len(tokens), ::-1])

    @staticmethod
    def state(tokens: Tokens) -> list[int]:
        """The state after reading ``tokens``: the last 16 ids that have an embedding, after BOS."""
        tail = [int(t) for t in np.asarray(tokens)[-PAST:] if t != PLACEHOLDER]
        return ([BOS, *tail])[-PAST:]

    def next_token(self, sequence: KVSequence, temperature: float = 0.0) -> int:
        """One step of attention over the first ``length`` slots of the sequence's pages, whoever
        wrote them. Ids from 256 on are never emitted."""
        query = np.full(PAST, NO_AGREEMENT, np.uint16)
        recent = sequence.context[-PAST:][::-1]
        query[: len(recent)] = recent
        if temperature <= 0 and (found := self._near(sequence, query)) is not None:
            return found
        mass = np.zeros(258)
        for keys, tokens in _blocks(sequence):
            mass += self._mass(keys, tokens, query)
        likely = mass[:256]
        if temperature <= 0:
            return int(likely.argmax())
        with np.errstate(divide="ignore"):
            logits = np.log(likely) / temperature
        spread = np.exp(logits - logits.max())
        return int(self._random.choice(256, p=spread / spread.sum()))

    def _near(self, sequence: KVSequence, query: Tokens) -> int | None:
        """The likeliest token by the slots that agree in one of the last two ids; None where the weight of all
        others together could make it another one."""
        near_keys, near_tokens = [], []
        for keys, tokens in _blocks(sequence):
            (near,) = ((keys[:, 0] == query[0]) | (keys[:, 1] == query[1])).nonzero()
            near_keys.append(keys[near])
            near_tokens.append(tokens[near])
        tokens = np.concatenate(near_tokens)
        likely = self._mass(np.concatenate(near_keys), tokens, query)[:256]
        first = int(likely.argmax())
        lead = likely[first]
        likely[first] = 0.0
        left_out = (sequence.length - len(tokens)) * self._weights[_FAR]
        return first if lead - likely.max() > left_out else None

    def _mass(self, keys: Keys, tokens: Tokens, query: Tokens) -> NDArray[np.float64]:
        """The weights of these slots, summed by token: array (258,)."""
        patterns = np.packbits(np.equal(keys, query).reshape(-1), bitorder="little").view("<u2")
        sums = np.bincount(tokens, weights=self._weights[patterns], minlength=258)
        return sums.astype(np.float64, copy=False)

    def step(self, sequence: KVSequence, token: int) -> None:
        """Append ``token`` to the sequence: its key and value go into the next slot."""
        pool, at = sequence.pool, sequence.length
        page, slot = sequence.table[at // pool.page_size], at % pool.page_size
        recent = sequence.context[-PAST:][::-1]
        pool.keys[page, slot, : len(recent)] = recent
        pool.keys[page, slot, len(recent) :] = NEVER
        pool.tokens[page, slot] = token
        pool.writers[page, slot] = sequence.writer
        sequence.length += 1
        sequence.context.append(token)
        del sequence.context[:-PAST]


def _blocks(sequence: KVSequence) -> Iterator[tuple[Keys, Tokens]]:
    """Keys and tokens of every filled slot, in blocks that fit the cache. Order does not matter:
    attention is a sum."""
    pool = sequence.pool
    flat_keys, flat_tokens = pool.keys.reshape(-1, PAST), pool.tokens.reshape(-1)
    runs, scattered = sequence.plan()
    for low, high in runs:
        for at in range(low, high, _BLOCK):
            yield flat_keys[at : min(at + _BLOCK, high)], flat_tokens[at : min(at + _BLOCK, high)]
    step = max(1, _BLOCK // pool.page_size)
    for at in range(0, len(scattered), step):
        pages = scattered[at : at + step]
        yield pool.keys[pages].reshape(-1, PAST), pool.tokens[pages].reshape(-1)
    rest = sequence.length % pool.page_size
    if rest:
        page = int(sequence.table[sequence.length // pool.page_size])
        yield pool.keys[page, :rest], pool.tokens[page, :rest]
