"""Reads what a tenant asked of a gateway, whatever the route."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

COMPLETIONS, CHAT, GENERATE = "/v1/completions", "/v1/chat/completions", "/generate"
GENERATION = (GENERATE, COMPLETIONS, CHAT)


@dataclass(slots=True)
class Asked:
    """One generation request. ``tokens`` counts as the lab does, a byte a token, without what a chat template
    adds; ``room`` are those that its answer may have, whatever becomes of the body; ``number`` counts the requests of
    a run from 1, ``at`` is in seconds of the virtual clock."""

    path: str
    body: dict[str, Any]
    key: str
    number: int
    at: float
    room: int = field(init=False)

    def __post_init__(self) -> None:
        limits = self.body.get("sampling_params") or {} if self.path == GENERATE else self.body
        names = ("max_completion_tokens", "max_tokens", "max_new_tokens")
        self.room = next((int(limits[name]) for name in names if limits.get(name) is not None), 16)

    @property
    def chat(self) -> bool:
        return self.path == CHAT

    @property
    def streamed(self) -> bool:
        return self.body.get("stream") is True

    @property
    def text(self) -> str:
        if self.path == CHAT:
            return "".join(_content(message.get("content")) for message in self.body.get("messages") or [])
        prompt = self.body.get("prompt", self.body.get("input_ids", self.body.get("text")))
        if isinstance(prompt, list):
            return bytes(token & 255 for token in prompt).decode("latin-1")
        return str(prompt or "")

    @property
    def tokens(self) -> int:
        return len(self.text.encode("latin-1", errors="replace"))

    def with_room(self, tokens: int) -> dict[str, Any]:
        """The body with another limit of the answer."""
        if self.path == GENERATE:
            return self.body | {
                "sampling_params": (self.body.get("sampling_params") or {}) | {"max_new_tokens": tokens}
            }
        name = "max_completion_tokens" if "max_completion_tokens" in self.body else "max_tokens"
        return self.body | {name: tokens}


def _content(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")
