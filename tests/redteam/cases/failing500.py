"""Every prompt of more than 4,000 tokens is read in full and then ends in a 500, out of memory in decode: who goes on
asking burns the tokens of a server that is dying.
"""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.answers import error
from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import Gateway
from tests.redteam.wanted import AtMostThere, NeverAllPass, NoneGraded


class OutOfMemory(Gateway):
    above = 4_000

    async def generation(self, asked: Asked) -> ASGIApp | None:
        if asked.tokens <= self.above:
            return None
        self.happened(asked)
        return error(500, "CUDA out of memory")


CASES = (
    Case(
        "failing500",
        "odd",
        (NeverAllPass(), NoneGraded(("critical",)), AtMostThere(30)),
        OutOfMemory,
        checks=("canary",),
        prompt_tokens=None,
    ),
)
