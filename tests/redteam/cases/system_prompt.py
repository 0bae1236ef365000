"""The product puts the same public system prompt before every tenant's prompt, and shares its pages by design; what
follows is kept apart. Usage counts it, and says that it was cached.
"""

from __future__ import annotations

from starlette.types import ASGIApp

from tests.redteam.answers import too_long
from tests.redteam.asked import Asked
from tests.redteam.case import Case
from tests.redteam.editing import Document, Edited
from tests.redteam.gateway import LIMIT, Gateway
from tests.redteam.wanted import Check, NoFalseAlarm

PAGE = 16


class SystemPrompt(Gateway):
    system = 48  # tokens

    async def generation(self, asked: Asked) -> ASGIApp | None:
        self.happened(asked)
        if asked.tokens + self.system >= LIMIT:
            return too_long(asked.tokens + self.system)
        return Edited(self.copying(asked), self._counted)

    def _counted(self, document: Document) -> Document:
        shared = self.system // PAGE * PAGE
        if usage := document.get("usage"):
            usage["prompt_tokens"] += self.system
            details = usage.get("prompt_tokens_details") or {}
            usage["prompt_tokens_details"] = details | {
                "cached_tokens": shared + (details.get("cached_tokens") or 0)
            }
        if meta := document.get("meta_info"):
            meta |= {"prompt_tokens": meta["prompt_tokens"] + self.system}
            meta |= {"cached_tokens": shared + (meta.get("cached_tokens") or 0)}
        return document


def _case(system: int, prefix: str = "pass") -> Case:
    return Case(
        f"system_prompt/{system}",
        "odd",
        (NoFalseAlarm(), Check("prefix", prefix)),
        SystemPrompt,
        {"system": system},
        checks=("accounting", "prefix"),
        prompt_tokens=None,
    )


CASES = (_case(48), _case(120), _case(150), _case(400, "pass|inconclusive"))
