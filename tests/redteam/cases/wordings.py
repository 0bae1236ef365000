"""Healthy models that say more than the word that was asked: they paraphrase, answer in another language or in
markdown, tell their role first, begin with blank lines, or repeat the question.
"""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import Gateway
from tests.redteam.texts import copied
from tests.redteam.wanted import Check, NoFalseAlarm

WORDINGS = {
    "paraphrase": " {word}. The value you are looking for appears to be {word}, judging from the records above.",
    "german": " {word}. Das gesuchte Wort lautet {word}, so steht es weiter oben im Text geschrieben.",
    "markdown": "**{word}**\n\n> {rest}",
    "role": "Assistant: {word}. {rest}",
    "blank_lines": "\n\n\n  {word}. {rest}",
    "asks_back": " {word}. Would you like further details, or shall I summarise these records instead?",
}


class Wording(Gateway):
    wording = "{word}"
    characters_per_token = 4

    async def generation(self, asked: Asked) -> ASGIApp | None:
        self.happened(asked)
        word, _, rest = copied(asked.text, 4 * asked.room).strip().partition(".")
        return self.saying(asked, self.wording.format(word=word, rest=rest))


CASES = tuple(
    Case(
        f"wordings/{name}",
        "odd",
        (NoFalseAlarm(), Check("rejection", "pass"), Check("coherence", "pass|inconclusive")),
        Wording,
        {"wording": wording},
        fast=name == "paraphrase",
    )
    for name, wording in WORDINGS.items()
)
