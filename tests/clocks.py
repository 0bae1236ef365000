"""Machines whose clock is wrong, played by one process: what `kvaudit.clock` takes for the machine's clock moves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from kvaudit import clock

_ask_the_database = clock.set_by_database


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta], timedelta]:
    """``machine(off)``: from now on this process runs on a machine whose clock is that far off, and has just
    asked the database for the time; gives the skew that it found. Django's own clock is the machine's."""
    from django.utils import timezone

    monkeypatch.setattr(clock, "set_by_database", _ask_the_database)

    def run_on(off: timedelta) -> timedelta:
        monkeypatch.setattr(clock, "_machine", lambda: datetime.now(UTC) + off)
        monkeypatch.setattr(timezone, "now", lambda: datetime.now(UTC) + off)
        monkeypatch.setattr(clock, "_anchor", None)
        return clock.set_by_database()

    return run_on
