"""Half of the answers are another tenant's whole last answer: two requests in a router get each other's stream.
9router#3164.
"""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import LIMIT, Gateway
from tests.redteam.texts import copied
from tests.redteam.wanted import SomeFail


class WholeAnswers(Gateway):
    rate = 0.5

    async def generation(self, asked: Asked) -> ASGIApp | None:
        other = self.others_last(asked)
        if not other or asked.tokens >= LIMIT or self.random.random() >= self.rate:
            return None
        self.happened(asked)
        return self.saying(asked, copied(other, asked.room))


CASES = (
    Case("swapped", "leak", (SomeFail(),), WholeAnswers),
    Case(
        "swapped/seldom",
        "leak",
        (SomeFail(),),
        WholeAnswers,
        {"rate": 0.05},
        checks=("canary",),
        prompt_tokens=None,
    ),
)
