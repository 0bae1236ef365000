"""The model was trained to 6,000 tokens and is served with a longer context (an override of max_position): beyond, it
babbles. Nothing of anybody else is in its answers.
"""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import LIMIT, Gateway
from tests.redteam.wanted import NoFalseAlarm

BABBLE = (" the", " the the", " of", ",", " 1", "\n", " and")


class Cliff(Gateway):
    trained = 6_000

    async def generation(self, asked: Asked) -> ASGIApp | None:
        if not self.trained < asked.tokens < LIMIT:
            return None
        self.happened(asked)
        said = "".join(self.random.choice(BABBLE) for _ in range(asked.room))
        return self.saying(asked, said, finish="length")


CASES = (
    Case(
        "cliff",
        "odd",
        (NoFalseAlarm(),),
        Cliff,
    ),
)
