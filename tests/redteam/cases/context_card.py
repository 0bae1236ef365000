"""A sidecar in front of the engine curates the model card: ``max_model_len`` says what is sold, the engine takes four
times as much and says so itself. By the card alone, the pool is large enough.
"""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from tests.redteam.case import Case, Lab
from tests.redteam.editing import Document, Edited
from tests.redteam.gateway import Gateway
from tests.redteam.wanted import Check


class CuratedCard(Gateway):
    sold, taken = 2_048, 8_192

    async def other(self, scope: Scope, receive: Receive, send: Send) -> None:
        changes = {"/v1/models": self._card, "/server_info": self._engine, "/get_server_info": self._engine}
        change = changes.get(scope["path"])
        application = Edited(self.labs[0], change) if change else self.labs[0]
        await application(scope, receive, send)

    def _card(self, document: Document) -> Document:
        self.lengths.append(self.sold)
        return document | {"data": [card | {"max_model_len": self.sold} for card in document["data"]]}

    def _engine(self, document: Document) -> Document:
        return document | {"context_length": self.taken}


SMALL_POOL = Lab(("none",), {"unified": True, "prefill_pool": 5_328}, known=True)

CASES = (
    Case(
        "context_card",
        "leak",
        (Check("pool", "fail|inconclusive"),),
        CuratedCard,
        labs=(SMALL_POOL,),
        before="nodes",
        checks=("pool",),
        fast=True,
    ),
)
