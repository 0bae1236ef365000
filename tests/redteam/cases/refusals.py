"""Prompts above the limit are refused in other words, or with a code: the limit holds, as it should."""

from __future__ import annotations

from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.gateway import LIMIT, Gateway
from tests.redteam.wanted import Check, NoFalseAlarm

WORDS = {
    "window": {"message": "Your prompt does not fit into the context window of this model."},
    "number": {
        "message": "The request has more than the maximum number of tokens that this deployment takes."
    },
    "cannot": {"message": "Prompt tokens cannot exceed 8185."},
    "code": {"message": "Bad request.", "code": "context_length_exceeded"},
}


class Refusing(Gateway):
    error = WORDS["window"]

    async def generation(self, asked: Asked) -> ASGIApp | None:
        if asked.tokens < LIMIT:
            return None
        self.happened(asked)
        return JSONResponse({"error": {"type": "invalid_request_error", **self.error}}, 400)


CASES = tuple(
    Case(
        f"refusals/{name}",
        "odd",
        (NoFalseAlarm(), Check("rejection", "pass")),
        Refusing,
        {"error": said},
        checks=("rejection",),
        fast=name == "code",
    )
    for name, said in WORDS.items()
)
