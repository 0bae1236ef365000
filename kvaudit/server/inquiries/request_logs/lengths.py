"""Counts the requests of a log by length, coarsely, with nothing of who asked. Pure.

Eight buckets to each doubling, so that a bucket is no wider than an eighth of its lengths; below 64 tokens one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PIECES = 8
SHORTEST = 64  # tokens; below it everything is one bucket
_BITS = SHORTEST.bit_length() - 1


def bucket_of(tokens: int) -> int:
    """The number of the bucket that holds a length."""
    if tokens < SHORTEST:
        return 0
    octave = tokens.bit_length() - 1
    piece = (tokens - (1 << octave)) * PIECES >> octave
    return 1 + (octave - _BITS) * PIECES + piece


def limits(bucket: int) -> tuple[int, int]:
    """Its lengths: [from, to) tokens."""
    if bucket == 0:
        return 0, SHORTEST
    octave, piece = divmod(bucket - 1, PIECES)
    width = SHORTEST // PIECES << octave
    low = (SHORTEST << octave) + piece * width
    return low, low + width


def as_json(counted: Mapping[int, int]) -> list[list[int]]:
    """``[[from, to, requests], ...]`` in order of length, out of counts by bucket."""
    return [[*limits(bucket), number] for bucket, number in sorted(counted.items())]


@dataclass(frozen=True, slots=True)
class RequestCount:
    """``least`` to ``most`` requests: those of buckets that lie partly inside may be on either side."""

    least: int
    most: int

    @property
    def words(self) -> str:
        return f"{self.least:,}" if self.least == self.most else f"{self.least:,} to {self.most:,}"


def between(stored: object, low: int, high: int) -> RequestCount | None:
    """Of stored counts those of [low, high) tokens; None where they cannot be read."""
    found = _read(stored)
    if found is None:
        return None
    least = sum(number for start, end, number in found if low <= start and end <= high)
    most = sum(number for start, end, number in found if start < high and low < end)
    return RequestCount(least, most)


def _read(stored: object) -> Sequence[tuple[int, int, int]] | None:
    if not isinstance(stored, list):
        return None
    found = []
    for item in stored:
        if not (isinstance(item, list) and len(item) == 3 and all(type(number) is int for number in item)):
            return None
        found.append((item[0], item[1], item[2]))
    return found
