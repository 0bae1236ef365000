"""Gives the lab its time: real, or simulated by an event loop that jumps instead of waiting.

Everything in the lab waits with asyncio (``sleep``, ``wait_for``, ``timeout``) and reads
``asyncio.get_running_loop().time()``; so the same engine, the same HTTP application and the same
client run on the real loop and on `VirtualLoop`, where a night of audits takes seconds and every
timestamp is exact and reproducible. On a virtual loop nothing may wait for another thread or a
socket: time would run on without it. Transports are in-process (`kvaudit.lab.inprocess`).
"""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

VIRTUAL_EPOCH = 1_796_000_000.0
"""Unix time at which virtual time starts, so that simulated answers carry plausible dates."""


class _JumpingSelector(selectors.SelectSelector):
    """Returns at once and advances the loop's time by what it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout is not None else None)
        if timeout is not None and not ready:
            self.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock starts at 0 and jumps to the next timer when nothing is runnable."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` to its end in simulated time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def is_virtual() -> bool:
    """Whether the running loop simulates time."""
    return isinstance(asyncio.get_running_loop(), VirtualLoop)


def now() -> float:
    """Seconds on the running loop's clock; differences only."""
    return asyncio.get_running_loop().time()


def wall() -> float:
    """Unix time in seconds; simulated on a virtual loop."""
    return VIRTUAL_EPOCH + now() if is_virtual() else time.time()


class Compute:
    """Where numpy runs: inline on a virtual loop, else in one thread, so that attention never holds
    up the event loop and pool arrays have one writer."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        if is_virtual():
            return work(*args)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="lab-attention")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None


@dataclass(frozen=True, slots=True)
class Durations:
    """How long things take, in seconds. A prefill of n uncached tokens takes a + b n + c n^2 with
    log-normal ``noise``; a transfer and a decoding step are linear. ``scale`` multiplies all."""

    a: float = 5e-3
    b: float = 4e-6
    c: float = 1e-9
    transfer: float = 5e-4
    transfer_token: float = 2e-7
    decode_token: float = 3e-4
    noise: float = 0.04
    scale: float = 1.0

    def prefill(self, tokens: int, jitter: float = 0.0) -> float:
        """Seconds for ``tokens`` uncached tokens; ``jitter`` is a standard normal draw."""
        steady = self.a + self.b * tokens + self.c * tokens * tokens
        return self.scale * steady * math.exp(self.noise * jitter)

    def send(self, tokens: int) -> float:
        return self.scale * (self.transfer + self.transfer_token * tokens)

    def decode(self, tokens: int) -> float:
        return self.scale * self.decode_token * tokens


async def wait(seconds: float) -> None:
    """Sleep on the running loop's clock; zero only yields."""
    await asyncio.sleep(max(seconds, 0.0))
