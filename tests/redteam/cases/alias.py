"""The gateway answers under the upstream's own name of the model, as hosted APIs do: always the same other name."""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.answers import error
from tests.redteam.asked import GENERATE, Asked
from tests.redteam.case import Case
from tests.redteam.editing import Document, Edited
from tests.redteam.gateway import Gateway
from tests.redteam.wanted import Check, NoFalseAlarm


def _renamed(document: Document) -> Document:
    return document | {"model": f"org/{document['model']}-2026-11"} if document.get("model") else document


class Alias(Gateway):
    engine_route = True  # /generate, which names no model

    async def generation(self, asked: Asked) -> ASGIApp | None:
        if asked.path == GENERATE and not self.engine_route:
            return error(404, "Not Found")
        self.happened(asked)
        return Edited(self.copying(asked), _renamed)


CASES = (
    Case("alias", "odd", (NoFalseAlarm(), Check("rejection", "pass")), Alias),
    Case(
        "alias/openai_only",
        "odd",
        (NoFalseAlarm(), Check("rejection", "pass")),
        Alias,
        {"engine_route": False},
    ),
)
