"""The gateway turns an upstream 400 into HTTP 200 with a sentence as content: isolated, and ugly."""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.answers import answered
from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import LIMIT, Gateway
from tests.redteam.wanted import Check, NoneGraded

SENTENCES = (
    "Sorry, your message is too long: the maximum context length is 8192 tokens. Please shorten it and try again.",
    "I cannot read that much text at once. Could you split it into smaller parts, please?",
)


class RefusalAsContent(Gateway):
    sentence = SENTENCES[0]

    async def generation(self, asked: Asked) -> ASGIApp | None:
        if asked.tokens < LIMIT:
            return None
        self.happened(asked)
        return answered(asked, self.sentence)


def _case(name: str, *wanted, note: str = "", **parameters: object) -> Case:
    return Case(name, "odd", (*wanted, NoneGraded()), RefusalAsContent, parameters, open=note)


CASES = (
    _case("error_text_200", Check("rejection", "fail", "medium")),
    _case("error_text_200/vague", note="It is taken for an answer.", sentence=SENTENCES[1]),
)
