"""Chooses the lengths of the ladder around the limit, and searches for a limit that no reading gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

CLOSE = 64
"""Tokens to which an unknown boundary is located."""

SHORTEST = 512
LEAST_REPEATS = 3
LONGEST_SEARCHED = 4_194_304


@dataclass(frozen=True, slots=True)
class Rung:
    """One length in tokens and how often it is asked."""

    name: str
    tokens: int
    repeats: int = 1


def rungs(
    first_rejected: int | None,
    context: int | None,
    page: int,
    edge_limit: int | None = None,
    replayed: Iterable[int] = (),
    routes: int = 1,
) -> tuple[Rung, ...]:
    """The ladder around N (checks.md 3), N-1 first in every repeat since refusals lean on it.

    Lengths that coincide are asked once, under the first name; without N there is no ladder.
    ``replayed`` lengths failed in an earlier run and are asked as often as the boundary itself, which is asked by
    each of ``routes`` once at least.
    """
    if first_rejected is None:
        return ()
    n, often = first_rejected, max(LEAST_REPEATS, routes)
    wanted = [
        Rung("N-1", n - 1, often),
        Rung("N-64", n - 64),
        Rung("N-2", n - 2),
        Rung("N", n, often),
        Rung("N+1", n + 1),
        Rung("N+page", n + page),
    ]
    if context is not None:
        if context > n + 1:
            wanted.append(Rung("midpoint", (n + context) // 2, often))
        wanted += [Rung("C-1", context - 1), Rung("C", context), Rung("C+1", context + 1)]
    if edge_limit is not None:
        wanted += [Rung("edge", edge_limit), Rung("edge+1", edge_limit + 1, often)]
    wanted += [Rung(f"replayed {tokens}", tokens, often) for tokens in replayed]
    chosen: dict[int, Rung] = {}
    for rung in wanted:
        if rung.tokens >= SHORTEST // 2 or rung.name in ("N-1", "N"):
            kept = chosen.setdefault(rung.tokens, rung)
            if rung.repeats > kept.repeats:
                chosen[rung.tokens] = Rung(kept.name, rung.tokens, rung.repeats)
    return tuple(chosen.values())


async def bisect(read: Callable[[int], Awaitable[bool | None]], context: int | None) -> int | None:
    """The shortest length known not to be read, within 64 tokens of the longest known to be read.

    ``read(tokens)``: True read, False not, None no answer. None when the boundary was not found.
    """
    low, high = SHORTEST, (context or SHORTEST * 2) + 1
    if await read(low) is not True:
        return None
    while context is None and high < LONGEST_SEARCHED:
        answer = await read(high)
        if answer is None:
            return None
        if not answer:
            break
        low, high = high, high * 2
    else:
        if await read(high) is not False:
            return None
    while high - low > CLOSE:
        middle = (low + high) // 2
        answer = await read(middle)
        if answer is None:
            return None
        low, high = (middle, high) if answer else (low, middle)
    return high
