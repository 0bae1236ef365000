"""Four replicas behind one entry, all of them given; other customers send each twice as many tokens as the audit, so
that a third of what is read back was ours. Nothing leaks, and not a third of a pass is shown.
"""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.asked import Asked
from tests.redteam.case import UNIFIED, Case
from tests.redteam.gateway import Gateway
from tests.redteam.texts import prompt_of_customers
from tests.redteam.wanted import Check

CUSTOMER = "sk-lab-tenant-b"


class FourReplicas(Gateway):
    others = 2

    async def generation(self, asked: Asked) -> ASGIApp | None:
        replica = self.random.choice(self.labs)
        for _ in range(self.others):
            length = max(200, min(asked.tokens, 8_000))
            await self.ask(replica, CUSTOMER, prompt_of_customers(self.random, length))
        self.happened(asked)
        return self.copying(asked, replica)


CASES = (
    Case(
        "replicas",
        "odd",
        (Check("canary", "inconclusive"),),
        FourReplicas,
        labs=(UNIFIED,) * 4,
        checks=("canary",),
    ),
)
