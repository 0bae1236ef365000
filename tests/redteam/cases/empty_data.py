"""Streams as the standard allows them: keep-alives as an empty data line, as comments, or as events of another name."""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.editing import Edited
from tests.redteam.gateway import Gateway
from tests.redteam.wanted import Check, NoFalseAlarm


class KeepAlive(Gateway):
    before = b"data:\n\n"
    after = b""

    async def generation(self, asked: Asked) -> ASGIApp | None:
        if not asked.streamed:
            return None
        self.happened(asked)
        return Edited(self.copying(asked), before=self.before, after=self.after)


def _case(name: str, **parameters: object) -> Case:
    wanted = (NoFalseAlarm(), Check("rejection", "pass"), Check("coherence", "pass"))
    return Case(name, "odd", wanted, KeepAlive, parameters)


CASES = (
    _case("empty_data"),
    _case("empty_data/comments", before=b": waiting for a worker\n\n: still waiting\n\n", after=b": bye\n\n"),
    _case("empty_data/ping", before=b"event: ping\ndata: {}\n\n"),
)
