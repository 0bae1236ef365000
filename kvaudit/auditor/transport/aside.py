"""Does work that may hang beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

Made = TypeVar("Made")


async def aside(work: Callable[[], Made], name: str) -> Made:
    """What ``work`` returns or raises, done in a daemon thread of its own. Whoever waits may stop waiting at a
    deadline: a look-up or a read that hangs must not outlive it, and asyncio's own executor would be waited for
    at exit."""
    loop = asyncio.get_running_loop()
    made: asyncio.Future[Made] = loop.create_future()

    def settle(result: Callable[[], None]) -> None:
        if not made.done():
            result()

    def run() -> None:
        try:
            value = work()
        except Exception as error:  # noqa: BLE001 - raised again where it is awaited
            outcome = _raising(made, error)
        else:
            outcome = _returning(made, value)
        try:
            loop.call_soon_threadsafe(settle, outcome)
        except RuntimeError:
            return  # the loop is closed: nobody waits for this any more

    threading.Thread(target=run, name=name, daemon=True).start()
    return await made


def _raising(made: asyncio.Future[Made], error: Exception) -> Callable[[], None]:
    return lambda: made.set_exception(error)


def _returning(made: asyncio.Future[Made], value: Made) -> Callable[[], None]:
    return lambda: made.set_result(value)
