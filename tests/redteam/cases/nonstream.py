"""Answers that are not streamed come out of the other tenant's last prompt: a bug of the path that is not streamed."""

from __future__ import annotations

from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import LIMIT
from tests.redteam.leaking import AnswersOfOthers
from tests.redteam.wanted import SomeFail


class NotStreamed(AnswersOfOthers):
    def leaks(self, asked: Asked) -> bool:
        return not asked.streamed


class ChatNotStreamed(AnswersOfOthers):
    def leaks(self, asked: Asked) -> bool:
        return asked.chat and not asked.streamed


CASES = (
    Case("nonstream", "leak", (SomeFail(),), NotStreamed),
    Case(
        "nonstream/long",
        "leak",
        (SomeFail(),),
        NotStreamed,
        {"at": range(2_000, LIMIT)},
    ),
    Case(
        "nonstream/chat",
        "leak",
        (SomeFail(),),
        ChatNotStreamed,
    ),
)
