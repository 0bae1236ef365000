"""Some of the long prompts are answered from other customers' pages, and nothing of ours is in them: the incident's
shape, at a rate. The pages are old, so no marker of this run lies in them.
"""

from __future__ import annotations

from collections.abc import Container

from starlette.types import ASGIApp

from tests.redteam.answers import answered
from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import LIMIT, Gateway
from tests.redteam.texts import of_customers
from tests.redteam.wanted import Happened, NeverAllPass


class CustomersText(Gateway):
    at: Container[int] = range(2_000, LIMIT - 100)  # beyond, an answer has too little room to say whose it is
    rate = 0.03

    async def generation(self, asked: Asked) -> ASGIApp | None:
        if asked.tokens not in self.at or self.random.random() >= self.rate:
            return None
        self.happened(asked)
        text = of_customers(self.random, asked.room)
        if asked.tokens >= LIMIT:  # the lab would refuse
            return answered(asked, text[: asked.room], "length")
        return self.saying(asked, text)


WANTED = (Happened(2), NeverAllPass())


def _case(name: str, **parameters: object) -> Case:
    return Case(name, "leak", WANTED, CustomersText, parameters, checks=("canary",), prompt_tokens=None)


CASES = (
    _case("low_rate"),
    _case("low_rate/above_limit", at=range(LIMIT, LIMIT + 10), rate=1 / 16),
)
