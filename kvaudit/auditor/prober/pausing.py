"""Waits as long as a target asks for: what a rate limit says in Retry-After is true."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from kvaudit.auditor.checks.prober_protocol import Outcome, Reply

LONGEST_PAUSE = 300.0
"""Seconds that one request may wait in all; a longer one is left void, and the set goes on."""


def seconds_of(retry_after: str, now: datetime | None = None) -> float | None:
    """Seconds out of a Retry-After header, a number or a date; None where it says neither."""
    said = retry_after.strip()
    if said.isascii() and said.isdigit():
        return float(said) if len(said) <= 9 else None
    try:
        until = parsedate_to_datetime(said)
    except (TypeError, ValueError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - (now or datetime.now(UTC))).total_seconds())


@dataclass(slots=True)
class Pauses:
    """Until when nothing is sent as a tenant, in seconds of the target's clock."""

    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    _until: dict[str, float] = field(default_factory=dict)

    def note(self, tenant: str, reply: Reply) -> float | None:
        """The pause that a reply asks for, from now on; None for none, or for a longer one than is waited for."""
        pause = reply.retry_after
        if reply.outcome is not Outcome.BUSY or pause is None or pause > LONGEST_PAUSE:
            return None
        self._until[tenant] = max(self._until.get(tenant, 0.0), self.now() + pause)
        return pause

    async def over(self, tenant: str) -> None:
        """Return once the tenant's pause is over."""
        while (left := self._until.get(tenant, 0.0) - self.now()) > 0:
            await self.sleep(left)

    async def until_sent(self, tenant: str, send: Callable[[], Awaitable[Reply]]) -> Reply:
        """The reply to a request that is sent again after each pause that it is asked for."""
        began = self.now()
        while True:
            await self.over(tenant)
            reply = await send()
            pause = self.note(tenant, reply)
            if pause is None or self.now() + pause - began > LONGEST_PAUSE:
                return reply
