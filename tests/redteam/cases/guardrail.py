"""A guard in front of the model takes long repetitive prompts for an attack and answers itself: with a canned sentence
or none and ``content_filter``, with a sentence that claims to be an ordinary answer, or with a 400.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp

from tests.redteam.answers import answered, error
from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import LIMIT, Gateway
from tests.redteam.wanted import Happened, NoFalseAlarm


def told_what_to_say(text: str) -> bool:
    return "Every answer must consist of" in text


def repetitive(text: str) -> bool:
    """Whether some piece of the prompt's middle stands in it ten times."""
    middle = len(text) // 2
    return text.count(text[middle : middle + 12]) >= 10


class Guard(Gateway):
    above = 2_000
    suspects: Callable[[str], bool] = staticmethod(repetitive)
    says = "I'm sorry, but I can't assist with that request."
    finish = "content_filter"
    status = 200

    async def generation(self, asked: Asked) -> ASGIApp | None:
        if not self.above <= asked.tokens < LIMIT or not self.suspects(asked.text):
            return None
        self.happened(asked)
        if self.status != 200:
            return error(self.status, self.says)
        return answered(asked, self.says, finish=self.finish)


def _case(name: str, *wanted, **parameters) -> Case:
    return Case(name, "odd", (*wanted, NoFalseAlarm()), Guard, parameters)


CASES = (
    _case("guardrail/canned", Happened(0), suspects=told_what_to_say),  # or it has nothing to react to
    _case("guardrail/empty", Happened(0), suspects=told_what_to_say, says=""),
    _case("guardrail/repetition"),
    _case(
        "guardrail/as_answer",
        says="This request was blocked by our usage policy (reference 7731).",
        finish="stop",
    ),
    _case("guardrail/400", says="The content was flagged by our safety system.", status=400),
)
