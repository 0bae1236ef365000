"""A prober whose answers a test decides: no target, no tokenizer, prompts that know only their contents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvaudit.auditor.checks.prober_protocol import Limits, Outcome, Reply
from kvaudit.auditor.engines.completion import Mode
from kvaudit.auditor.text.markers import Draw, Marker, seeded
from kvaudit.auditor.text.prompts import Contents, Tail
from kvaudit.auditor.text.spelling import Prompt
from tests.auditor.checks.active import ROOMY, A, B


@dataclass(frozen=True)
class Asked:
    """One request as the script sees it. ``replayed``: the identical prompt was asked before."""

    prompt: Prompt
    tenant: str
    max_tokens: int
    salt: str | None
    stream: bool
    replayed: bool

    @property
    def right(self) -> str:
        """The text that gives the nonce."""
        assert self.prompt.contents is not None
        assert self.prompt.contents.tail.nonce is not None
        return f" {self.prompt.contents.tail.nonce.word}."


Script = Callable[[Asked], Reply | str]
"""A reply, or the text of a plain answer."""


@dataclass
class Scripted:
    """Answers by ``script``; ``asked`` keeps what was sent."""

    script: Script
    limits: Limits = ROOMY
    tenants: tuple[str, ...] = (A, B)
    salted: bool = True
    templates: Mapping[tuple[Mode, str], int] = field(default_factory=dict)
    modes: tuple[Mode, ...] = (Mode.COMPLETION_IDS,)
    draw: Draw = field(default_factory=lambda: seeded(5))
    unwell: str = ""
    most_room: int = 4_096
    asked: list[Asked] = field(default_factory=list)

    async def framed(
        self,
        marker: Marker,
        tokens: int,
        tail: Tail,
        needles: Any = (),
        *,
        tenant: str = "",
        lead: str = "",
        mode: Mode | None = None,
    ) -> Prompt:
        contents = Contents(marker, tail, tuple(needles), lead)
        return Prompt(tokens, b"1", contents=contents, mode=mode.value if mode else "")

    async def ask(self, tenant: str, prompt: Prompt, *, max_tokens: int, **more: Any) -> Reply:
        salt = more.get("salt")
        if salt and not self.salted:
            raise ValueError("cannot carry a cache salt")
        replayed = any(one.prompt is prompt for one in self.asked)
        self.asked.append(Asked(prompt, tenant, max_tokens, salt, more.get("stream", True), replayed))
        found = self.script(self.asked[-1])
        if isinstance(found, Reply):
            return found
        return Reply(
            Outcome.ANSWERED,
            200,
            found,
            prompt_tokens=prompt.tokens,
            cached_tokens=0,
            tokens_sent=prompt.tokens,
        )

    def room(self, prompt_tokens: int, wanted: int) -> int:
        return min(wanted, self.most_room)

    async def healthy(self) -> str:
        return self.unwell
