"""Looks like a response cache and is none: one id for all answers, a hit that every answer announces, a gateway whose
clock is behind.
"""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.editing import Document, Edited
from tests.redteam.gateway import Gateway
from tests.redteam.wanted import Check


class NoCache(Gateway):
    id = ""
    behind = 0  # seconds
    header = ""

    async def generation(self, asked: Asked) -> ASGIApp | None:
        self.happened(asked)
        headers = {"x-cache": self.header} if self.header else None
        return Edited(self.copying(asked), self._changed, headers=headers)

    def _changed(self, document: Document) -> Document:
        if self.id and "id" in document:
            document |= {"id": self.id}
        if "created" in document:
            document["created"] -= self.behind
        return document


def _case(name: str, **parameters: object) -> Case:
    wanted = (Check("prefix", "pass"),)
    return Case(
        f"no_cache/{name}", "odd", wanted, NoCache, parameters, checks=("prefix",), prompt_tokens=None
    )


CASES = (_case("one_id", id="x"), _case("always_hit", header="HIT"), _case("clock_behind", behind=90))
