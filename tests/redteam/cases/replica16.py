"""Sixteen replicas behind one entry: fifteen are healthy and on the inventory, one was added by the autoscaler on a
smaller card, and is the incident's engine. Other customers use it too, so that its pages are theirs.
"""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.asked import Asked
from tests.redteam.case import HEALTHY, Case, Lab
from tests.redteam.gateway import LIMIT, Gateway
from tests.redteam.texts import prompt_of_customers
from tests.redteam.wanted import NeverAllPass

CUSTOMER = "sk-lab-tenant-b"


class OneOfSixteen(Gateway):
    share = 1 / 16
    limit = 5_322  # tokens, of the small one

    async def generation(self, asked: Asked) -> ASGIApp | None:
        if self.random.random() >= self.share:
            return None
        for _ in range(2):
            await self.ask(self.labs[1], CUSTOMER, prompt_of_customers(self.random, 5_000))
        if self.limit <= asked.tokens < LIMIT:
            self.happened(asked)
        return self.labs[1]


CASES = (
    Case(
        "replica16",
        "leak",
        (NeverAllPass(),),
        OneOfSixteen,
        labs=(HEALTHY, Lab(("stale_pages",), {"prefill_pool": 5_328})),
        checks=("canary",),
        prompt_tokens=None,
    ),
)
