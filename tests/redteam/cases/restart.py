"""An operator restarts the deployment while the audit runs: 90 seconds of refused work, from the 60th request on. Or
other requests hold it up, and every tenth answer begins 45 seconds late.
"""

from __future__ import annotations

from starlette.types import ASGIApp

from kvaudit.lab.clock import wait
from tests.redteam.answers import error
from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import Gateway
from tests.redteam.wanted import NoFalseAlarm


class Restart(Gateway):
    request, seconds, status = 60, 90.0, 502
    retry_after = "30"
    since = float("inf")

    async def generation(self, asked: Asked) -> ASGIApp | None:
        if asked.number == self.request:
            self.since = asked.at
        if not 0 <= asked.at - self.since < self.seconds:
            return None
        self.happened(asked)
        headers = {"retry-after": self.retry_after} if self.retry_after else None
        return error(self.status, "no healthy upstream: workers are starting", headers)


class LongNeighbour(Gateway):
    every, seconds = 10, 45.0

    async def generation(self, asked: Asked) -> ASGIApp | None:
        if asked.number % self.every == 0:
            self.happened(asked)
            await wait(self.seconds)
        return None


CHECKS = ("coherence", "canary")

CASES = (
    Case("restart", "odd", (NoFalseAlarm(),), Restart, checks=CHECKS),
    Case(
        "restart/quiet",
        "odd",
        (NoFalseAlarm(),),
        Restart,
        {"status": 503, "retry_after": ""},
        checks=CHECKS,
    ),
    Case("restart/neighbour", "odd", (NoFalseAlarm(),), LongNeighbour, checks=CHECKS),
)
