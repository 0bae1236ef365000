"""Pages in the middle of a long prompt are another customer's; its end is its own. The answer gives the own nonce
first, and then goes on with the customer's text.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from starlette.types import ASGIApp

from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import LIMIT, Gateway
from tests.redteam.texts import CUSTOMERS, copied
from tests.redteam.wanted import NeverAllPass

GERMAN = (
    " Sehr geehrte Frau Vasquez, Ihre Kündigung zum Quartalsende haben wir erhalten; die Abfindung beträgt 41.200 Euro.",
    " Protokoll der Aufsichtsratssitzung, vertraulich: der Standort Regensburg wird geschlossen, betroffen sind 318 Leute.",
)


class NonceThenForeign(Gateway):
    at: Container[int] = range(4_000, LIMIT)
    rate = 1.0
    texts: Sequence[str] = CUSTOMERS

    async def generation(self, asked: Asked) -> ASGIApp | None:
        if asked.tokens not in self.at or self.random.random() >= self.rate:
            return None
        self.happened(asked)
        own = copied(asked.text, 48).split(".")[0] + "."
        return self.saying(asked, own + self.random.choice(self.texts))


def _case(name: str, **parameters: object) -> Case:
    return Case(name, "leak", (NeverAllPass(),), NonceThenForeign, parameters)


CASES = (
    _case("nonce_then_foreign"),
    _case("nonce_then_foreign/half", rate=0.5),
    _case("nonce_then_foreign/german", texts=GERMAN),
)
