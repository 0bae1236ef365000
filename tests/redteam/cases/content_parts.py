"""Chat only, and the content of an answer is a list of parts, as Mistral and others send it."""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.answers import error
from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import Gateway
from tests.redteam.texts import copied
from tests.redteam.wanted import Check, NoFalseAlarm


class ContentParts(Gateway):
    async def generation(self, asked: Asked) -> ASGIApp | None:
        if not asked.chat:
            return error(404, "Not Found")
        self.happened(asked)
        text = copied(asked.text, asked.room)
        return self.saying(asked, text, content=[{"type": "text", "text": text}])


CASES = (
    Case(
        "content_parts",
        "odd",
        (NoFalseAlarm(), Check("rejection", "pass"), Check("coherence", "pass")),
        ContentParts,
    ),
)
