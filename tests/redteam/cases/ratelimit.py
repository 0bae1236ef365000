"""A tenant may send 60 requests a minute; beyond that 429 with a Retry-After of which every word is true."""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.answers import error
from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import Gateway
from tests.redteam.wanted import Check, NoFalseAlarm


class RateLimit(Gateway):
    per_minute = 60

    def __init__(self, labs, seed) -> None:
        super().__init__(labs, seed)
        self._times: dict[str, list[float]] = {}

    async def generation(self, asked: Asked) -> ASGIApp | None:
        recent = [at for at in self._times.get(asked.key, []) if asked.at - at < 60]
        self._times[asked.key] = recent
        if len(recent) < self.per_minute:
            recent.append(asked.at)
            return None
        self.happened(asked)
        seconds = int(60 - (asked.at - recent[0])) + 1
        return error(429, f"Rate limit reached, try again in {seconds}s", {"retry-after": str(seconds)})


CASES = (
    Case(
        "ratelimit",
        "odd",
        (NoFalseAlarm(), Check("rejection", "pass"), Check("coherence", "pass")),
        RateLimit,
    ),
    Case(
        "ratelimit/twelve",
        "odd",
        (NoFalseAlarm(), Check("rejection", "pass"), Check("coherence", "pass")),
        RateLimit,
        {"per_minute": 12},
    ),
)
