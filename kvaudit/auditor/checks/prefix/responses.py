"""Does another key get an answer that was made for the first? Signs of a response cache, beside equal bytes.

One prompt is sent as A and later as B. A cached answer keeps its ``id`` and the time it was made, and gateways say
"hit" in a header (litellm#29955). None of it is taken for a sign unless prompts that nobody ever sent lack it: an
engine may number all its answers alike, and a gateway call every answer a hit of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

LEAST_SKEW = 2.0
"""Seconds: ``created`` counts whole ones."""

LEAST_LOTS = 3

GAP = 8.0
"""Seconds between A's request and B's, which an answer made for A would be too old by."""


@dataclass(frozen=True, slots=True)
class Made:
    """When and as what an answer was made. ``sent``: seconds of the target's clock; None = not said."""

    sent: float
    id: str = ""
    created: float | None = None
    cache_headers: frozenset[str] = frozenset()


@dataclass(slots=True)
class Twins:
    """Answers to one prompt by two keys, and to fresh ones."""

    way: str  # "chat with text, whole"
    fresh: list[Made] = field(default_factory=list)
    pairs: list[tuple[Made, Made]] = field(default_factory=list)  # (A's, B's)

    def signs(self) -> tuple[str, ...]:
        """What of B's answers was A's, one clause a pair; "" parts are left out."""
        found = [clause for first, other in self.pairs if (clause := self._of(first, other))]
        return tuple(found)

    def _of(self, first: Made, other: Made) -> str:
        ids = [one.id for one in (*self.fresh, first) if one.id]
        if other.id and other.id == first.id and len(set(ids)) == len(ids) > 1:
            return "the same id"
        if self._older(other):
            return "made before it was asked for"
        hits = other.cache_headers - frozenset(
            name for one in (*self.fresh, first) for name in one.cache_headers
        )
        return f"a header that says {sorted(hits)[0]}" if hits else ""

    def _older(self, other: Made) -> bool:
        """Whether ``created`` lies before the request by more than the clocks of fresh answers differ."""
        offsets = [one.created - one.sent for one in self.fresh if one.created is not None]
        if other.created is None or len(offsets) < 2:
            return False
        skew = max(LEAST_SKEW, max(offsets) - min(offsets) + 1.0)
        return other.created - other.sent < min(offsets) - skew


@dataclass(slots=True)
class Lots:
    """Answers of two keys to one draw of lots, by one route. ``again``: the same lots although no cached response could
    serve them, as a deterministic engine draws."""

    mode: str
    compared: int = 0
    equal: int = 0
    again: int = 0

    @property
    def shared(self) -> bool:
        return self.compared >= LEAST_LOTS and self.equal == self.compared and not self.again


def shared(twins: Sequence[Twins]) -> str:
    """The sentence of a response cache that two keys share, "" where no two pairs show it."""
    for one in twins:
        signs = one.signs()
        if len(signs) >= 2:
            return (
                f"The second key received the first key's answers to {len(signs)} of {len(one.pairs)} prompts "
                f"({one.way}, temperature 0; {signs[0]})"
            )
    return ""
