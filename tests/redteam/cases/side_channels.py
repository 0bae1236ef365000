"""The text of the answer is right, and another tenant's text comes back beside it: in a header, log probabilities, a
tool's name, a refusal, annotations, reasoning, usage, a comment of the stream, or in the text of an error.
"""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.answers import error
from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.editing import Document, Edited
from tests.redteam.gateway import LIMIT, Gateway
from tests.redteam.texts import copied
from tests.redteam.wanted import NothingInClear, SomeFail

CUSTOMER = "Okonkwo"  # stands in no prompt of ours


def _beside(where: str, stolen: str) -> dict[str, object]:
    words = stolen.split()
    return {
        "toolname": {"tool_calls": [{"index": 0, "function": {"name": stolen, "arguments": ""}}]},
        "refusal": {"refusal": stolen},
        "annotations": {"annotations": [{"type": "file_citation", "quote": stolen}]},
        "reasoning": {"reasoning_content": stolen},
        "logprobs": {
            "logprobs": {"tokens": [f" {word}" for word in words], "token_logprobs": [0.0] * len(words)}
        },
    }[where]


class BesideTheText(Gateway):
    where = "header"
    above = 4_000
    pad = ""

    async def generation(self, asked: Asked) -> ASGIApp | None:
        other = self.others_last(asked)
        in_error = self.where in ("error", "error500")
        if not other or asked.tokens < self.above or (asked.tokens >= LIMIT) != (self.where == "error"):
            return None
        if self.where == "reasoning" and not asked.chat:
            return None
        stolen = f"{' '.join(other[200:420].split())} (to Mrs {CUSTOMER})"
        self.happened(asked)
        self.secrets = [CUSTOMER]
        if in_error:
            return self._error(stolen)
        return self._answer(asked, stolen)

    def _error(self, stolen: str) -> ASGIApp | None:
        if self.where == "error500":
            return error(500, f"Internal error while handling the prompt: {stolen}")
        said = "The input (8186 tokens) is longer than the model's context length (8192 tokens)."
        return error(400, f"{said} {self.pad} Prompt: {stolen}")

    def _answer(self, asked: Asked, stolen: str) -> ASGIApp:
        if self.where == "header":
            return Edited(self.copying(asked), headers={"x-upstream-debug": stolen})
        if self.where == "comment":
            return Edited(self.copying(asked), after=f": evicted {stolen}\n\n".encode())
        if self.where == "usage":
            return Edited(self.copying(asked), lambda document: _in_usage(document, stolen))
        said = copied(asked.text, asked.room)
        around = {"choice" if self.where == "logprobs" else "beside": _beside(self.where, stolen)}
        return self.saying(asked, said, **around)


def _in_usage(document: Document, stolen: str) -> Document:
    if document.get("usage"):
        document["usage"]["prompt_tokens_details"]["preview"] = stolen
    return document


def _case(where: str, **parameters: object) -> Case:
    name = f"side_channels/{parameters.pop('name', where)}"
    wanted = (SomeFail(), NothingInClear())
    return Case(name, "leak", wanted, BesideTheText, {"where": where, **parameters}, fast=where == "header")


CASES = (
    *(_case(where) for where in ("header", "logprobs", "toolname", "refusal", "annotations")),
    _case("error"),
    _case("error", name="errorlong", pad="x" * 600),
    _case("error500"),
    _case("reasoning"),
    _case("usage"),
    _case("comment"),
)
