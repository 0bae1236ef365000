"""Gathers what an answer holds besides its text: log probabilities, tool names, refusals, annotations, whatever a
server adds. It is searched for planted text like the answer itself, and as little is kept of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SPOKEN = frozenset(("text", "content", "reasoning", "reasoning_content", "arguments"))
"""Names of strings that are the text of an answer, within a choice."""

MOST_CHARACTERS = 200_000
"""Kept of one answer, first come; one of the length that was asked for has some thousands."""

MOST_PLACES = 40
DEEPEST = 12


@dataclass(slots=True)
class Aside:
    """Strings by where they stood (``choices.logprobs.tokens``), those of later frames behind the earlier ones:
    a stream cuts words anywhere."""

    _pieces: dict[str, list[str]] = field(default_factory=dict, repr=False)
    _left: int = MOST_CHARACTERS

    def add(self, payload: Any, place: str = "", depth: int = 0) -> None:
        """Every string of one JSON value, except the text of the answer."""
        if isinstance(payload, dict):
            for name, value in payload.items():
                if not (isinstance(value, str) and name in SPOKEN and _spoken(place)):
                    self._one(value, f"{place}.{name}" if place else str(name), depth)
        elif isinstance(payload, list):
            for value in payload:
                self._one(value, place, depth)

    def add_text(self, place: str, text: str) -> None:
        """A string that stood outside the JSON: a header, a comment of a stream."""
        if text and self._left > 0 and (place in self._pieces or len(self._pieces) < MOST_PLACES):
            self._pieces.setdefault(place, []).append(text[: self._left])
            self._left -= len(text)

    def _one(self, value: Any, place: str, depth: int) -> None:
        if isinstance(value, str):
            self.add_text(place, value)
        elif isinstance(value, dict | list) and depth < DEEPEST:
            self.add(value, place, depth + 1)

    def texts(self) -> Mapping[str, str]:
        """Place -> what it said. Pieces stand back to back, as a stream cuts words, and once more apart, as a list
        holds them."""
        return {
            place: pieces[0] if len(pieces) == 1 else f"{''.join(pieces)}\n{' '.join(pieces)}"
            for place, pieces in self._pieces.items()
        }


def _spoken(place: str) -> bool:
    return place in ("", "choices", "choices.delta", "choices.message") or place.endswith(
        "tool_calls.function"
    )
