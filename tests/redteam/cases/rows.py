"""Two rows of a batch are mixed word by word: every second word of the answer is another tenant's. sglang#18744."""

from __future__ import annotations

from itertools import zip_longest

from starlette.types import ASGIApp

from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import LIMIT, Gateway
from tests.redteam.texts import copied
from tests.redteam.wanted import SomeFail


class RowsInterleaved(Gateway):
    above = 1_000

    async def generation(self, asked: Asked) -> ASGIApp | None:
        other = self.others_last(asked)
        if not other or not self.above < asked.tokens < LIMIT:
            return None
        self.happened(asked)
        rows = copied(asked.text, asked.room).split(), copied(other[: len(other) // 2], asked.room).split()
        words = [word for pair in zip_longest(*rows, fillvalue="") for word in pair if word]
        return self.saying(asked, " ".join(words))


CASES = (Case("rows", "leak", (SomeFail(),), RowsInterleaved, checks=("canary",), prompt_tokens=None),)
