"""Faults of the decoding batch: a request gets rows that are not its own, or a model that wears out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kvaudit.lab.faults.base import Faults, Nature
from kvaudit.lab.model import PAST, KVSequence
from kvaudit.lab.pool import Keys, KVPool, Tokens
from kvaudit.lab.request import BatchRow

SPARE_PAGES = 64
"""Room in a swapped session for what is generated after it."""


class Crossed(Faults):
    """sglang #4593, #18744, vllm #13408, mlx-lm #965 (KVA-010, KVA-018, KVA-045): two requests overlap and
    a slot of the request table is reused too early: each row points to the other's pages, and the
    answers come back swapped."""

    name = "crossed"
    nature = Nature.LEAKS
    reports: ClassVar[tuple[str, ...]] = (
        "sglang#4593",
        "sglang#18744",
        "vllm#13408",
        "mlx-lm#965",
        "KVA-010",
        "KVA-018",
        "KVA-045",
    )
    RATE = 0.1

    def assign_row(self, row: BatchRow, rows: Sequence[BatchRow]) -> None:
        others = self._candidates(row, rows)
        if others and self.random.random() < self.RATE:
            other = self.random.choice(others)
            row.sequence, other.sequence = other.sequence, row.sequence
            row.last, other.last = other.last, row.last

    def _candidates(self, row: BatchRow, rows: Sequence[BatchRow]) -> list[BatchRow]:
        return [other for other in rows if not other.request.finished()]


class MixedLen(Crossed):
    """vllm #39589 (KVA-021): two requests of different lengths at once, 4 of 50 wrong; equal lengths
    0 of 50, in sequence 0 of 50."""

    name = "mixed_len"
    nature = Nature.LEAKS
    reports = ("vllm#39589", "KVA-021")
    RATE = 0.08

    def _candidates(self, row: BatchRow, rows: Sequence[BatchRow]) -> list[BatchRow]:
        length = len(row.request.input_ids)
        return [other for other in super()._candidates(row, rows) if len(other.request.input_ids) != length]


@dataclass(slots=True)
class Snapshot:
    """A session up to some page of its prompt, as it lay in the pool, and the state there."""

    keys: Keys
    tokens: Tokens
    writers: NDArray[np.int32]
    context: list[int]
    last: int


class SnapshotRestore(Faults):
    """llama.cpp #27148 (KVA-042): a checkpoint of an idle slot is restored into a fresh one; a new
    request continues an old conversation from there, and ``cached_tokens`` says 0."""

    name = "snapshot_restore"
    nature = Nature.LEAKS
    reports = ("llama.cpp#27148", "KVA-042")
    RATE = 0.5

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._snapshots: deque[Snapshot] = deque(maxlen=4)

    def finished(self, row: BatchRow) -> None:
        sequence, size = row.sequence, row.sequence.pool.page_size
        full = len(row.request.input_ids) // size
        if full < 2:
            return
        pages = self.random.randrange(1, full)
        table = sequence.table[: pages + 1]
        text = sequence.pool.tokens[table].reshape(-1)
        cut = pages * size
        self._snapshots.append(
            Snapshot(
                sequence.pool.keys[table[:pages]].copy(),
                sequence.pool.tokens[table[:pages]].copy(),
                sequence.pool.writers[table[:pages]].copy(),
                [int(token) for token in text[max(0, cut - PAST) : cut]],
                int(text[cut]),
            )
        )

    def restore(self, row: BatchRow) -> None:
        if not self._snapshots or self.random.random() >= self.RATE:
            return
        old, sequence = self._snapshots[-1], row.sequence
        pages = min(len(old.keys), sequence.length // sequence.pool.page_size)
        if not pages:
            return
        table = sequence.table[:pages]
        sequence.pool.keys[table] = old.keys[-pages:]
        sequence.pool.tokens[table] = old.tokens[-pages:]
        sequence.pool.writers[table] = old.writers[-pages:]
        sequence.length = pages * sequence.pool.page_size
        sequence.context[:] = old.context
        row.last = old.last


class ForeignAfterNonce(Faults):
    """A row that is swapped out and in again gets another session's pages: an answer begins right, nonce and all,
    and after a page goes on with what somebody else was told. No public report names it; a check that stops
    at the nonce passes it."""

    name = "foreign_after_nonce"
    nature = Nature.LEAKS
    reports = ()
    AFTER = 16  # tokens of an answer
    LEAST = 2_048  # tokens of a prompt

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._swapped: deque[tuple[BatchRow, KVPool]] = deque(maxlen=2)

    def finished(self, row: BatchRow) -> None:
        sequence, prompt = row.sequence, len(row.request.input_ids)
        source = sequence.pool
        if prompt < self.LEAST or sequence.writer != row.request.ticket:
            return
        pages = source.pages_for(prompt)
        kept = KVPool((pages + SPARE_PAGES) * source.page_size, source.page_size, PAST)
        kept.copy_in(source, sequence.table[:pages], np.arange(pages, dtype=np.int32))
        self._swapped.append((row, kept))

    def turn(self, row: BatchRow, rows: Sequence[BatchRow]) -> None:
        request = row.request
        if len(request.output_ids) < self.AFTER or len(request.input_ids) < self.LEAST:
            return
        if not self._swapped or row.sequence.writer != request.ticket:
            return
        other, kept = self._swapped[-1]
        prompt = [int(token) for token in other.request.input_ids]
        cut = self.random.randrange(PAST, len(prompt) - 1)
        table = np.arange(kept.pages, dtype=np.int32)
        row.sequence = KVSequence(kept, table, len(prompt), prompt[cut - PAST : cut], other.request.ticket)
        row.last = prompt[cut]


class Interleaved(Faults):
    """sglang #18744: two rows of the batch exchange their pages from turn to turn, and two answers come out
    piece by piece in turn: each holds the words of both, none of them four in a row."""

    name = "interleaved"
    nature = Nature.LEAKS
    reports = ("sglang#18744",)

    def turn(self, row: BatchRow, rows: Sequence[BatchRow]) -> None:
        at = rows.index(row)
        if at % 2 or at + 1 >= len(rows):
            return  # the first of each pair exchanges for both
        other = rows[at + 1]
        if not other.stepping and not other.request.finished():
            row.sequence, other.sequence = other.sequence, row.sequence
            row.last, other.last = other.last, row.last


class BatchGarbles(Faults):
    """sglang #31641: alone every answer is right; with two or more rows in the batch all of them are garbage,
    whatever their lengths."""

    name = "batch_garbles"
    nature = Nature.HIDES
    reports = ("sglang#31641",)

    def sampled(self, token: int, rows: Sequence[BatchRow]) -> int:
        return token if len(rows) < 2 else self.random.randrange(97, 123)


class QualityDrift(Faults):
    """sglang #23020 (KVA-006): over a hundred long requests in sequence, accuracy falls from 95 % to
    50 %; values in the pool are wrong a little more often with every request served."""

    name = "quality_drift"
    nature = Nature.HIDES
    reports = ("sglang#23020", "KVA-006")
    PER_REQUEST = 0.002
    WORST = 0.6

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._noise = np.random.default_rng(seed)

    def worn(self, tokens: Tokens, served: int) -> Tokens:
        wrong = self._noise.random(len(tokens)) < min(self.WORST, self.PER_REQUEST * served)
        worn = tokens.copy()
        worn[wrong] = self._noise.integers(97, 123, int(wrong.sum()))
        return worn
