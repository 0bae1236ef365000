"""Judges the answers that miss what their own prompt asked for, the same way for every check.

A healthy model misses now and then, and a leak that strikes one prompt of thirty looks just like it. So no tolerance
is granted: every miss is followed up at once (`kvaudit.auditor.checks.asker`), by the identical prompt and by a fresh
one of the same length. Asking two fresh ones and forgiving what they answer would hide a random leak: of leaks at
2, 5 and 10 % of prompts, .4, 2 and 11 % of runs would see something; with these rules .7, .92 and .99 do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kvaudit.auditor.checks.trials import Trial
from kvaudit.auditor.stats.bounds import binomial_limit, fisher_greater

SIGNIFICANT = 0.01
FLIPS = 0.01
"""Share of a healthy model's answers that another batch beside them turns, since sums are rounded differently."""

BABBLE = 0.03
"""Share of a healthy model's misses that hold words of neither prompt nor control answers."""

LOOK_AT_MISSES = (
    "Open the sealed answers that came without their nonce (run page, Evidence) and compare with a fresh process of "
    "the same build at these lengths (kvaudit probe rejection coherence canary)."
)


class MissKind(StrEnum):
    """What following up a miss showed."""

    EXPLAINED = "explained"  # the same prompt misses again, a fresh one is read: the prompt's own fault
    UNREPRODUCED = "unreproduced"  # the same prompt is read now, or nobody can say
    PERSISTENT = "persistent"  # a fresh prompt misses as well


@dataclass(frozen=True, slots=True)
class Miss:
    """An answer without what was asked, and whether its two repeats gave it; None = not asked, not answered, or
    served from a cache, which repeats the damage. ``above``: its length should have been refused."""

    first: Trial
    replay: bool | None = None
    fresh: bool | None = None
    above: bool = False

    @property
    def kind(self) -> MissKind:
        if self.fresh is False and self.replay is not True:
            return MissKind.PERSISTENT
        if self.fresh is True and self.replay is False:
            return MissKind.EXPLAINED
        return MissKind.UNREPRODUCED


@dataclass(frozen=True, slots=True)
class Compared:
    """Answers at a length whose misses persist, and to as many short prompts beside them."""

    tokens: int
    at: list[Trial] = field(default_factory=list)
    short: list[Trial] = field(default_factory=list)

    @property
    def p(self) -> float:
        """Fisher's one-sided p that this length is missed more often."""
        return fisher_greater(*missed(self.at), *missed(self.short))


@dataclass(slots=True)
class Misses:
    """The judged answers of a check. ``controls`` are answers to short prompts asked the same way; ``room`` the
    output tokens in which they gave their nonce, None where they did not, or were not asked."""

    answers: int = 0
    missed: int = 0
    foreign: int = 0  # of the missed: with words that neither the prompt nor the model's short answers hold
    explained: int = 0  # of the missed: the identical prompt misses again, out of no cache
    found: list[Miss] = field(default_factory=list)
    controls: list[Trial] = field(default_factory=list)
    controls_explained: int = 0  # of them: missed, and again when the identical prompt was repeated
    controls_flipped: int = 0  # of them: missed, and read when it was
    compared: dict[str, Compared] = field(default_factory=dict)  # by the cell's name
    room: int | None = None
    control_asked: bool = False

    def note(self, one: Trial) -> None:
        """Count an answer that could be judged; repeats as well, identical ones aside."""
        self.answers += one.nonce is not None
        self.missed += one.missed
        self.foreign += one.missed and one.foreign is True

    def add(self, miss: Miss) -> None:
        """Note how a miss was followed up."""
        self.found.append(miss)
        self.explained += miss.kind is MissKind.EXPLAINED

    @property
    def differs(self) -> bool:
        """Whether a length is known to be missed more often than short prompts: no repeat makes a pass of that."""
        return any(cell.p < SIGNIFICANT for cell in self.compared.values())

    @property
    def control_read(self) -> bool:
        """Whether a short prompt was read: without it a missing nonce says nothing."""
        return any(one.read for one in self.controls)

    @property
    def control_lost(self) -> bool:
        """Whether short prompts were asked in vain, in all the room there is."""
        return self.control_asked and not self.control_read

    @property
    def control_rate(self) -> float:
        """Share of the short prompts that are missed."""
        lost, judged = missed(self.controls)
        return lost / judged if judged else 0.0

    @property
    def control_unexplained(self) -> float:
        """Share of the short prompts that are missed, and nobody could ask the identical prompt again."""
        lost, judged = missed(self.controls)
        return max(0, lost - self.controls_explained - self.controls_flipped) / judged if judged else 0.0

    @property
    def control_flips(self) -> float:
        """Share of the short prompts that are missed once and read when repeated."""
        return self.controls_flipped / len(self.controls) if self.controls else 0.0

    @property
    def as_weak(self) -> int:
        """Misses that persist at a length where short prompts were found to be missed as often."""
        persistent = (one for one in self.found if one.kind is MissKind.PERSISTENT)
        return sum(one.first.name in self.compared for one in persistent)

    @property
    def unexplained(self) -> int:
        return self.missed - self.explained - self.as_weak

    @property
    def allowed(self) -> int:
        """Unexplained misses that chance brings at the short prompts' rate. A leak at every length brings them there
        too, so what is missed once and read the next time excuses no more than `FLIPS`."""
        rate = self.control_unexplained + min(self.control_flips, FLIPS)
        return max(1, binomial_limit(self.answers, rate))

    @property
    def why_no_pass(self) -> str:
        """The sentence of the first rule that forbids a pass, "" where none does."""
        return self._above() or self._differing() or self._foreign() or self._lost() or self._too_many()

    def _above(self) -> str:
        one = next((miss for miss in self.found if miss.above and miss.kind is not MissKind.EXPLAINED), None)
        if one is None or self.control_lost:
            return ""
        return (
            f"A prompt of {one.first.tokens:,} tokens, which is to be refused, was answered with HTTP 200 and without "
            "what it asked for."
        )

    def _differing(self) -> str:
        for cell in self.compared.values():
            if cell.p < SIGNIFICANT:
                lost, judged = missed(cell.at)
                short_lost, short = missed(cell.short)
                return (
                    f"At {cell.tokens:,} tokens {lost} of {judged} answers did not give what their own prompt asked "
                    f"for, of short ones {short_lost} of {short} (p = {cell.p:.1g}): long-context weakness or foreign "
                    "pages, not shown which."
                )
        lost, judged = missed(self.controls)
        p = fisher_greater(self.missed, self.answers, lost, judged)
        if p >= SIGNIFICANT:
            return ""
        longest = max((one.first.tokens for one in self.found), default=0)
        return (
            f"{self.missed} of {self.answers} answers, to prompts of up to {longest:,} tokens, did not give what their "
            f"own prompt asked for, of short ones {lost} of {judged} (p = {p:.1g}): long-context weakness or foreign "
            "pages, not shown which."
        )

    def _foreign(self) -> str:
        if self.foreign <= binomial_limit(self.answers, BABBLE * self.control_rate):
            return ""
        first = next((one.first for one in self.found if one.first.foreign), None)
        where = f", one at {first.tokens:,} tokens," if first is not None else ""
        return (
            f"{self.foreign} of {self.answers} answers{where} did not give what their own prompt asked for and hold "
            "words that neither the prompt nor the model's short answers do. Whose words they are is not known."
        )

    def _lost(self) -> str:
        if not self.missed or not self.control_lost:
            return ""
        return (
            f"{self.missed} of {self.answers} answers did not give what their own prompt asked for, and no short "
            "prompt was read either, so nothing says whether they were: a model too weak for this question, or pages "
            "of others."
        )

    def _too_many(self) -> str:
        if self.unexplained <= self.allowed:
            return ""
        lost, judged = missed(self.controls)
        lost -= self.controls_explained
        longest = max((one.first.tokens for one in self.found), default=0)
        return (
            f"{self.unexplained} of {self.answers} answers, to prompts of up to {longest:,} tokens, did not give what "
            f"their own prompt asked for, and asking again does not explain them. Short prompts do so {lost} of "
            f"{judged} times, which allows for {self.allowed}: a leak at some prompts or a weak model."
        )

    @property
    def said(self) -> str:
        """What a pass says of the misses beside it, "" for none."""
        if not self.missed:
            return ""
        return (
            f" {self.missed} of {self.answers} answers missed their nonce: {self.explained} because of the prompt (the "
            f"same one misses again), {self.unexplained} as short prompts do."
        )

    def as_measure(self) -> dict[str, Any]:
        lost, judged = missed(self.controls)
        kinds = [one.kind for one in self.found]
        return {
            "answers": self.answers,
            "missed": self.missed,
            "foreign_words": self.foreign,
            **{kind.value: kinds.count(kind) for kind in MissKind},
            "unexplained": self.unexplained,
            "controls": judged,
            "controls_missed": lost,
            "controls_explained": self.controls_explained,
            "controls_flipped": self.controls_flipped,
            "room": self.room,
            "compared": [
                {
                    "tokens": cell.tokens,
                    "missed": missed(cell.at),
                    "short_missed": missed(cell.short),
                    "p": cell.p,
                }
                for cell in self.compared.values()
            ],
        }


def missed(trials: Sequence[Trial]) -> tuple[int, int]:
    """(answers without what was asked, answers that could be judged)."""
    judged = [one for one in trials if one.nonce is not None]
    return sum(one.nonce is False for one in judged), len(judged)
