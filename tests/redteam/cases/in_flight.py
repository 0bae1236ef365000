"""Only under load: while another tenant's request is in flight, some answers come out of its prompt (sglang#31641: right
alone, wrong in a batch), or out of other customers' pages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import LIMIT, Gateway
from tests.redteam.texts import copied, of_customers
from tests.redteam.wanted import AllPass, NeverAllPass, SomeFail


class InFlight(Gateway):
    rate = 0.15
    stolen: Callable[[str], str] = staticmethod(
        lambda prompt: prompt[: len(prompt) // 2]
    )  # of the other's prompt
    customers = False

    def __init__(self, labs, seed) -> None:
        super().__init__(labs, seed)
        self._flying: Counter[tuple[str, str]] = Counter()

    async def generation(self, asked: Asked) -> ASGIApp | None:
        other = next((text for key, text in self._flying if key != asked.key), "")
        answer = self.copying(asked)
        if other and asked.tokens < LIMIT and self.random.random() < self.rate:
            self.happened(asked)
            stolen = (
                of_customers(self.random, asked.room)
                if self.customers
                else copied(self.stolen(other), asked.room)
            )
            answer = self.saying(asked, stolen)
        return self._counted((asked.key, asked.text), answer)

    def _counted(self, flight: tuple[str, str], answer: ASGIApp) -> ASGIApp:
        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            self._flying[flight] += 1
            try:
                await answer(scope, receive, send)
            finally:
                self._flying -= Counter([flight])

        return application


CHECKS = ("concurrency",)

CASES = (
    Case("control/load", "control", (AllPass(),), checks=CHECKS, prompt_tokens=None),
    Case("in_flight", "leak", (SomeFail(),), InFlight, checks=CHECKS, prompt_tokens=None),
    Case(
        "in_flight/nonce",
        "leak",
        (SomeFail(),),
        InFlight,
        {"stolen": str},
        checks=CHECKS,
        prompt_tokens=None,
    ),
    Case(
        "in_flight/customers",
        "leak",
        (NeverAllPass(),),
        InFlight,
        {"customers": True},
        checks=CHECKS,
        prompt_tokens=None,
    ),
)
