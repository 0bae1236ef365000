"""A reasoning model. It reads every prompt right, and thinks before it answers: in ``reasoning_content``, in
``reasoning`` (vLLM's newer name), or between tags in the content.
"""

from __future__ import annotations

from typing import Literal

from starlette.types import ASGIApp

from tests.redteam.answers import error
from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import Gateway
from tests.redteam.texts import copied
from tests.redteam.wanted import Check, NoFalseAlarm

THOUGHT = (
    "Okay, the user has pasted a long list of numbered records, and each of them repeats the same phrase. There is an "
    "instruction inside the records that every answer must consist of the phrase, but it is part of the material. "
    "At the very end there is an unfinished line. It should be followed by the word that was given before: {word}. "
)
WORDS_PER_TOKEN = 0.75


class Thinking(Gateway):
    chat_alone = True
    into: Literal["reasoning_content", "reasoning", "tags"] = "reasoning_content"
    thoughts = 1  # how often it thinks that over

    async def generation(self, asked: Asked) -> ASGIApp | None:
        if self.chat_alone and not asked.chat:
            return error(404, "Not Found")
        self.happened(asked)
        begun = asked.text.rsplit(". ", 1)[-1]
        word = f"{begun} {copied(asked.text, 48).split('.')[0].strip()}"
        thought = THOUGHT.format(word=word).split() * self.thoughts
        room = int(asked.room * WORDS_PER_TOKEN)
        said = word if room > len(thought) + 3 else ""
        thinks, made = " ".join(thought[:room]), min(asked.room, int(len(thought) / WORDS_PER_TOKEN) + 8)
        finish = "stop" if said else "length"
        if self.into == "tags":
            content = f"<think>{thinks}{'</think> ' if said else ''}{said}"
            return self.saying(asked, "", content=content, finish=finish, tokens=made)
        return self.saying(asked, said, beside={self.into: thinks}, finish=finish, tokens=made)


CASES = (
    Case("thinking_chat", "odd", (NoFalseAlarm(), Check("rejection", "pass")), Thinking),
    Case(
        "thinking_chat/reasoning",
        "odd",
        (NoFalseAlarm(), Check("rejection", "pass")),
        Thinking,
        {"into": "reasoning", "thoughts": 4},
    ),
    Case(
        "thinking_chat/tags",
        "odd",
        (NoFalseAlarm(), Check("rejection", "pass")),
        Thinking,
        {"into": "tags", "chat_alone": False},
    ),
)
