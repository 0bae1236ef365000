"""Servers whose decode reads the other tenant's last prompt at some places of some prompts, for the canary's power."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

LAST = 64
"""Tokens at the end of a prompt that stay its own."""

Places = Callable[[int], range]
Struck = Callable[[int, str, random.Random], bool]


def all_but_last(length: int) -> range:
    return range(max(0, length - LAST))


def middle(length: int) -> range:
    return range(length // 3, 2 * length // 3)


def always(length: int, start: str, rng: random.Random) -> bool:
    return True


def reading_others(
    places: Places = all_but_last, struck: Struck = always, seed: int = 0
) -> Callable[[Any, Any], None]:
    """For ``in_lab(meddle=...)``: the prompts that are ``struck`` (length, first characters) read at ``places`` what the
    other tenant's last prompt holds there. The pools and everything else are healthy."""
    rng, last = random.Random(seed), {}

    def meddle(lab: Any, prober: Any) -> None:
        decode = lab.deployment.nodes[-1]

        def assign_row(row: Any, rows: Any) -> None:
            sequence, ticket = row.sequence, row.request.ticket
            size = sequence.pool.page_size
            at = np.arange(sequence.length)
            pages, slots = sequence.table[at // size], at % size
            keys, tokens = sequence.pool.keys[pages, slots].copy(), sequence.pool.tokens[pages, slots].copy()
            tenant = lab.deployment.tenant_of[ticket]
            other = next((kept for name, kept in last.items() if name != tenant), None)
            last[tenant] = (keys, tokens)
            start = bytes(int(token) for token in tokens[:12] if token < 256).decode(errors="replace")
            if other is not None and struck(len(at), start, rng):
                there = np.array(places(len(at)), dtype=int)
                theirs = there % len(other[1])
                sequence.pool.keys[pages[there], slots[there]] = other[0][theirs]
                sequence.pool.tokens[pages[there], slots[there]] = other[1][theirs]

        decode.faults.assign_row = assign_row

    return meddle
