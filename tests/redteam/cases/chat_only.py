"""The gateway sends chat to one backend and completions to another (two pools, two releases). The chat backend is the
incident's engine, completions go to a healthy one.
"""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.asked import Asked
from tests.redteam.case import HEALTHY, Case, Lab
from tests.redteam.gateway import Gateway
from tests.redteam.wanted import SomeFail

INCIDENT = Lab(("stale_pages",), {"prefill_pool": 5_328})


class ChatElsewhere(Gateway):
    async def generation(self, asked: Asked) -> ASGIApp | None:
        if not asked.chat:
            return None
        self.happened(asked)
        return self.labs[1]


CASES = (
    Case(
        "chat_only",
        "leak",
        (SomeFail(),),
        ChatElsewhere,
        labs=(HEALTHY, INCIDENT),
    ),
)
