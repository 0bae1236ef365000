"""What does a cache hit hold? A hit can be counted and timed right and still be another's pages, or nobody's.

The same long text is asked again, with a question that differs in its last tokens only, and must give what it holds:
a fact at its depth, or its own phrase (no nonce: that stands in the last tokens, which are always computed). Reported
were answers that are right when computed and garbled on a hit (tenstorrent/vllm#415, vllm-ascend#5269), on a return
from a second tier (LMCache#5151, vllm#54193), and pages of another text under the own key (vllm#46951).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvaudit.auditor.checks.prober_protocol import Limits
from kvaudit.auditor.stats.bounds import binomial_limit, fisher_greater, stratified_greater
from kvaudit.auditor.text.markers import Draw, Marker, draw_marker
from kvaudit.auditor.text.prompts import Needle, Tail, bare_tokens, draw_needles, phrase_tail

SHORT, MIDDLE = 1_000, 4_000
QUESTIONS = 4
CONTROLS = 8
"""Short texts that are asked once, besides those that are asked again."""

ROOM = 64
"""Output tokens: four words of a phrase, of one token a letter."""

FAIL, OPEN = 0.001, 0.01
DEPTHS = (0.2, 0.5, 0.8)

FRESH, HIT, TIER = "fresh", "hit", "tier hit"


def lengths(limits: Limits) -> tuple[int, ...]:
    """Tokens of the texts that are asked again: a page or more, a chunk or more, and the longest."""
    longest = limits.longest_safe
    if longest is None:
        return (SHORT,)
    return tuple(dict.fromkeys(min(tokens, longest) for tokens in (SHORT, MIDDLE, longest)))


@dataclass(frozen=True, slots=True)
class Text:
    """One text with everything it may be asked for; only the tail differs from one question to the next."""

    marker: Marker
    needles: tuple[Needle, ...]
    lead: str

    def asking(self, question: int, draw: Draw, page: int) -> Tail:
        """A fact or the own phrase in turn, after a page that holds neither."""
        bare = bare_tokens(page)
        if question % 2:
            return phrase_tail(draw, bare)
        return replace(self.needles[question // 2 % len(self.needles)].tail, bare=bare)


def draw_text(draw: Draw, lead: str) -> Text:
    marker = draw_marker(draw)
    return Text(marker, draw_needles(draw, per_depth=1, depths=DEPTHS, without=marker.words), lead)


@dataclass(frozen=True, slots=True)
class Recalled:
    """One question to a text. ``arm``: "fresh" (never asked before: the control), "hit" or "tier hit"."""

    arm: str
    tokens: int
    given: bool
    cached: int | None = None
    mode: str = ""


Table = tuple[int, int, int, int]
"""Of one route: questions to hits that were missed, and all of them; the same of fresh texts."""


def _missed(recalled: Iterable[Recalled], arm: str, mode: str) -> tuple[int, int]:
    asked = [one for one in recalled if one.arm == arm and one.mode == mode]
    return sum(not one.given for one in asked), len(asked)


@dataclass(frozen=True, slots=True)
class Recall:
    """Hits of one tier against the same questions to fresh texts, each route against its own."""

    arm: str
    tables: tuple[Table, ...]

    @property
    def missed(self) -> int:
        return sum(table[0] for table in self.tables)

    @property
    def asked(self) -> int:
        return sum(table[1] for table in self.tables)

    @property
    def fresh_missed(self) -> int:
        return sum(table[2] for table in self.tables)

    @property
    def fresh(self) -> int:
        return sum(table[3] for table in self.tables)

    @property
    def p(self) -> float:
        """All routes together, or the worst of them by itself, whose chance counts once for each that was looked at."""
        worst = min((fisher_greater(*table) for table in self.tables), default=1.0)
        return min(stratified_greater(self.tables), len(self.tables) * worst)

    @property
    def excessive(self) -> bool:
        """Whether more is missed than the fresh texts' rates bring, one aside."""
        if not self.asked:
            return False
        expected = sum(asked * missed / fresh for _, asked, missed, fresh in self.tables if fresh)
        return self.missed > max(1, binomial_limit(self.asked, min(1.0, expected / self.asked)))

    def as_measure(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in ("arm", "missed", "asked", "fresh_missed", "fresh")}
        return {**counts, "p": self.p}

    @property
    def sentence(self) -> str:
        where = (
            "out of the prefix cache"
            if self.arm == HIT
            else "out of a second tier, after they had been evicted,"
        )
        return (
            f"Texts that came {where} did not give what they hold {self.missed} of {self.asked} times, fresh ones "
            f"{self.fresh_missed} of {self.fresh} times (p = {self.p:.1g})"
        )


def recalls(recalled: Sequence[Recalled]) -> tuple[Recall, ...]:
    """The arms that were asked, the worst first."""
    modes = list(dict.fromkeys(one.mode for one in recalled))
    found = [
        Recall(arm, tuple((*_missed(recalled, arm, mode), *_missed(recalled, FRESH, mode)) for mode in modes))
        for arm in (HIT, TIER)
    ]
    return tuple(sorted((one for one in found if one.asked), key=lambda one: one.p))
