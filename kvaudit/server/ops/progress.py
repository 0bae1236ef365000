"""Shows progress while kvaudit starts: a spinner on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


class Progress:
    """Steps with the seconds since the start; every line is flushed at once."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._console: Console | None = None
        if sys.stdout.isatty():
            from rich.console import Console

            self._console = Console(highlight=False)

    def say(self, text: str) -> None:
        """One line. Where it cannot be written (a log on a full disk) it is lost, and nothing else."""
        seconds = time.monotonic() - self._started
        with contextlib.suppress(OSError):
            if self._console:
                self._console.print(f"[dim]{seconds:6.1f} s[/dim]  ", end="")
                self._console.print(text, markup=False)
            else:
                print(f"{seconds:6.1f} s  {text}", flush=True)

    @contextmanager
    def step(self, doing: str, done: str) -> Iterator[None]:
        """Shows ``doing`` while it lasts and says ``done`` when it succeeded."""
        if self._console:
            with self._console.status(doing + " ..."):
                yield
        else:
            yield
        self.say(done)

    def plain(self, text: str) -> None:
        """A line that programs read: never wrapped, styled or prefixed."""
        with contextlib.suppress(OSError):
            print(text, flush=True)

    def close(self) -> None:
        """Let go of lines that could not be written: at its end Python would try again, and fail for it."""
        try:
            sys.stdout.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
