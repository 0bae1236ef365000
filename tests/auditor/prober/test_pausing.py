"""Retry-After: what it says, and that it is waited for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from kvaudit.auditor.checks.prober_protocol import Outcome, Reply
from kvaudit.auditor.prober.pausing import LONGEST_PAUSE, Pauses, seconds_of
from kvaudit.lab.clock import run_virtual

NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("30", 30.0),
        (" 0 ", 0.0),
        ("Tue, 01 Dec 2026 12:01:30 GMT", 90.0),
        ("Tue, 01 Dec 2026 11:00:00 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("9" * 30, None),
        ("²", None),
    ],
)
def test_headers(header: str, seconds: float | None) -> None:
    assert seconds_of(header, NOON) == seconds


def asked(*replies: Reply) -> tuple[Outcome, float, int]:
    """How a request ended, after how many seconds, sent how often."""
    following, sent = iter(replies), 0

    async def send() -> Reply:
        nonlocal sent
        sent += 1
        return next(following, Reply(Outcome.ANSWERED, 200))

    async def main() -> tuple[Outcome, float, int]:
        now = asyncio.get_running_loop().time
        began = now()
        reply = await Pauses(now, asyncio.sleep).until_sent("a", send)
        return reply.outcome, now() - began, sent

    return run_virtual(main())


def busy(retry_after: float | None) -> Reply:
    return Reply(Outcome.BUSY, 429, retry_after=retry_after)


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        ([], (Outcome.ANSWERED, 0.0, 1)),
        ([busy(30.0)], (Outcome.ANSWERED, 30.0, 2)),
        ([busy(30.0), busy(45.0)], (Outcome.ANSWERED, 75.0, 3)),
        ([busy(None)], (Outcome.BUSY, 0.0, 1)),
        ([busy(LONGEST_PAUSE + 1)], (Outcome.BUSY, 0.0, 1)),
        ([busy(200.0), busy(200.0)], (Outcome.BUSY, 200.0, 2)),
        ([Reply(Outcome.FAILED, 500, retry_after=30.0)], (Outcome.FAILED, 0.0, 1)),
    ],
)
def test_a_pause_is_waited_for(replies: list[Reply], expected: tuple[Outcome, float, int]) -> None:
    assert asked(*replies) == expected


def test_a_pause_holds_for_the_tenant_and_for_nobody_else() -> None:
    async def main() -> list[float]:
        now = asyncio.get_running_loop().time
        began, pauses = now(), Pauses(now, asyncio.sleep)
        pauses.note("a", busy(30.0))
        waited = []
        for tenant in ("b", "a", "a"):
            await pauses.over(tenant)
            waited.append(now() - began)
        return waited

    assert run_virtual(main()) == [0.0, 30.0, 30.0]
