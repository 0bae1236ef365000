"""Judges the misses of a check that asks in several ways: each way against its own short prompts, and all together.

How a model finds a nonce in a completion says nothing of a chat. But what one way alone may miss by chance, three may
not each: the allowance is that of the whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kvaudit.auditor.checks.misses import FLIPS, Miss, Misses
from kvaudit.auditor.checks.trials import Trial
from kvaudit.auditor.stats.bounds import binomial_limit


@dataclass(slots=True)
class MissesByWay:
    """Route -> the misses of what was asked by it."""

    by_mode: dict[str, Misses] = field(default_factory=dict)

    def of(self, mode: str) -> Misses:
        return self.by_mode.setdefault(mode, Misses())

    def note(self, one: Trial) -> None:
        """Count an answer that could be judged."""
        self.of(one.mode).note(one)

    def __iter__(self) -> Iterator[Misses]:
        return iter(self.by_mode.values())

    @property
    def found(self) -> list[Miss]:
        return [miss for misses in self for miss in misses.found]

    @property
    def controls(self) -> list[Trial]:
        return [one for misses in self for one in misses.controls]

    @property
    def control_lost(self) -> bool:
        """Whether short prompts were asked in vain in every way."""
        asked = [misses for misses in self if misses.control_asked or misses.answers]
        return bool(asked) and all(misses.control_lost for misses in asked)

    @property
    def unheard(self) -> str:
        """What a pass says of routes that nothing could be judged by, "" for none."""
        lost = [mode for mode, misses in self.by_mode.items() if misses.control_lost]
        return (
            f" Nothing was judged as {' or '.join(lost)}: short prompts are not read there." if lost else ""
        )

    @property
    def why_no_pass(self) -> str:
        """The sentence of the first rule that forbids a pass, "" where none does."""
        for mode, misses in self.by_mode.items():
            if reason := misses.why_no_pass:
                return f"{reason.rstrip('.')} (asked as {mode})." if len(self.by_mode) > 1 else reason
        return self._together()

    def _together(self) -> str:
        answers, unexplained = self._sum(lambda one: one.answers), self._sum(lambda one: one.unexplained)
        if not answers:
            return ""
        expected = sum(
            one.answers * (one.control_unexplained + min(one.control_flips, FLIPS)) for one in self
        )
        allowed = max(1, binomial_limit(answers, expected / answers))
        if unexplained <= allowed:
            return ""
        return (
            f"{unexplained} of {answers} answers, over {len(self.by_mode)} ways to ask, did not give what their own "
            f"prompt asked for, and asking again does not explain them. Short prompts asked alike allow for {allowed}: "
            "a leak at some prompts or a weak model."
        )

    @property
    def said(self) -> str:
        """What a pass says of the misses beside it, "" for none."""
        missed = self._sum(lambda one: one.missed)
        if not missed:
            return ""
        return (
            f" {missed} of {self._sum(lambda one: one.answers)} answers missed their nonce: "
            f"{self._sum(lambda one: one.explained)} because of the prompt (the same one misses again), "
            f"{self._sum(lambda one: one.unexplained)} as short prompts do."
        )

    def _sum(self, of: Callable[[Misses], int]) -> int:
        return sum(of(misses) for misses in self)

    def as_measure(self) -> list[dict[str, Any]]:
        """One row a way."""
        return [{"mode": mode, **misses.as_measure()} for mode, misses in self.by_mode.items()]
