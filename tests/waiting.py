"""Waiting for the thing itself, and time bounds that only a hang reaches.

The only place under ``tests/`` that sleeps or looks at a clock (`test_waiting.py` holds the others to it):
a test that counts on speed fails on a busy machine and says nothing about the product.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds until a wait is called a hang. Nothing that works takes as long, not on a slow busy machine either."""

SHORTEST_BOUND = 15.0
"""Seconds; a bound below would be met or missed by the machine, not by the code."""


def until(
    condition: Callable[[], T],
    what: str,
    seconds: float = PATIENCE,
    *,
    ignoring: tuple[type[Exception], ...] = (),
    about: Callable[[], object] | None = None,
    pause: float = 0.05,
) -> T:
    """Wait until ``condition()`` is truthy; gives its value.

    ``ignoring`` are exceptions that mean *not yet*. Else AssertionError: what was awaited, what the condition
    gave last, and what ``about()`` tells then, such as the log of a process.
    """
    deadline = time.monotonic() + seconds
    while True:
        late = time.monotonic() > deadline  # asked before looking: a pause of the machine is no failure
        try:
            if seen := condition():
                return seen
            last = repr(seen)
        except ignoring as fault:
            last = f"{type(fault).__name__}: {fault}"
        assert not late, _words(what, seconds, last, about)
        time.sleep(pause)


async def until_async(
    condition: Callable[[], T],
    what: str,
    seconds: float = PATIENCE,
    *,
    about: Callable[[], object] | None = None,
    pause: float = 0.005,
) -> T:
    """`until` inside an event loop, by its clock: seconds of a virtual loop are virtual."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        late = loop.time() > deadline
        if seen := condition():
            return seen
        assert not late, _words(what, seconds, repr(seen), about)
        await asyncio.sleep(pause)


@contextmanager
def bounded(seconds: float, what: str) -> Iterator[None]:
    """The block must end within ``seconds``: for a deadline of the product, beside something that hangs for
    good or would take minutes. Keep the bound far from the deadline and well below the hang."""
    assert seconds >= SHORTEST_BOUND, (
        f"{seconds:g} s depends on the machine: bounds begin at {SHORTEST_BOUND:g} s"
    )
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < seconds, f"{what} took {took:.1f} s, which must stay below {seconds:g} s"


def _words(what: str, seconds: float, last: str, about: Callable[[], object] | None) -> str:
    more = f"\n{about()}" if about else ""
    return f"waited {seconds:g} s for: {what}; last seen: {last}{more}"
