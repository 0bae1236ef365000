"""Gateways that several cases share: they give one tenant what is another's."""

from __future__ import annotations

from collections.abc import Callable, Container

from starlette.types import ASGIApp

from tests.redteam.asked import CHAT, Asked
from tests.redteam.gateway import LIMIT, Gateway
from tests.redteam.texts import copied

EVERY = range(LIMIT)


class AnswersOfOthers(Gateway):
    """The answer comes out of another tenant's last prompt, where `leaks` says so."""

    at: Container[int] = EVERY  # lengths in tokens
    residues: Container[int] = range(16)  # of the length mod 16
    rate = 1.0
    dressed: Callable[[str], str] = staticmethod(str)  # what becomes of the words

    def leaks(self, asked: Asked) -> bool:
        return True

    async def generation(self, asked: Asked) -> ASGIApp | None:
        other = self.others_last(asked)
        here = asked.tokens < LIMIT and asked.tokens in self.at and asked.tokens % 16 in self.residues
        if not other or not here or not self.leaks(asked) or self.random.random() >= self.rate:
            return None
        self.happened(asked)
        return self.saying(asked, self.dressed(copied(other[: len(other) // 2], asked.room)))


class PagesOfOthers(Gateway):
    """The engine reads pages of another tenant's last long prompt in place of some of the prompt's own, and answers out
    of what it then reads."""

    at: Container[int] = range(1_000, LIMIT)
    foreign: Callable[[int, int], bool] = staticmethod(lambda page, pages: True)  # page number of how many
    page = 16

    async def generation(self, asked: Asked) -> ASGIApp | None:
        if asked.tokens not in self.at:
            return None
        if other := self.others_last(asked):
            self.happened(asked)
            asked.body = with_text(asked, self.mixed(asked.text, other))
            return self.labs[0]
        return None

    def mixed(self, own: str, other: str) -> str:
        pages = -(-len(own) // self.page)
        other = (other * (len(own) // len(other) + 1))[: len(own)]
        pieces = []
        for number in range(pages):
            source = other if self.foreign(number, pages) else own
            pieces.append(source[number * self.page : (number + 1) * self.page])
        return "".join(pieces)


def with_text(asked: Asked, text: str) -> dict:
    """The body with another prompt of the same length."""
    if asked.path == CHAT:
        return asked.body | {"messages": [{"role": "user", "content": text}]}
    name = next(name for name in ("prompt", "input_ids", "text") if name in asked.body)
    if isinstance(asked.body[name], list):
        return asked.body | {name: list(text.encode("latin-1"))}
    return asked.body | {name: text}
