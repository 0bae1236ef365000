"""Several healthy replicas that are not alike: of two builds during a rollout, or busy now and then."""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.answers import error
from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.editing import Edited
from tests.redteam.gateway import Gateway
from tests.redteam.wanted import NoFalseAlarm


class TwoBuilds(Gateway):
    async def generation(self, asked: Asked) -> ASGIApp | None:
        self.happened(asked)
        build = {"system_fingerprint": self.random.choice(("fp-0.5.22-a", "fp-0.5.23-b"))}
        return Edited(self.copying(asked), lambda document: document | build)


class BusyNowAndThen(Gateway):
    share = 1 / 25

    async def generation(self, asked: Asked) -> ASGIApp | None:
        if self.random.random() >= self.share:
            return None
        self.happened(asked)
        return error(503, "All workers are busy.", {"retry-after": "2"})


CASES = (
    Case("several/builds", "odd", (NoFalseAlarm(),), TwoBuilds),
    Case("several/busy", "odd", (NoFalseAlarm(),), BusyNowAndThen),
)
