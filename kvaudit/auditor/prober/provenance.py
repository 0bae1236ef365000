"""Asks where the words of an answer come from: a prompt of ours has some thirty different words, so an answer with
others is the model's own or somebody else's. This sees customers' text, which no marker can.

Only counts leave this module. What an answer said is another person's until the opposite is known.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from kvaudit.auditor.stats.bounds import fisher_greater, stratified_greater
from kvaudit.auditor.text.matcher import plain
from kvaudit.auditor.text.prompts import Contents

JUDGED_TOKENS = 48
"""Tokens of an answer that are looked at: a model that is left to itself invents words further on."""

LETTERS = 4
FOREIGN_WORDS = 3
"""Different words of 4 letters and more that stand in neither the prompt nor a control answer: 0 of 55 healthy
answers of a real 135 M model had them, 7 of 7 that came from other pages did."""

_LETTERS = re.compile(r"[^\W\d_]+")
_UNSPACED = 0x2E80
"""From here on scripts write without blanks: Chinese, Japanese, Korean."""

LEAST_CONTROLS = 30
SIGNIFICANT = 0.001
OFTEN = 0.1


def strange_words(text: str, tokens: int | None, contents: Contents) -> frozenset[str]:
    """The different words of 4 letters and more that the own prompt does not hold, in the 48 tokens from the first of
    them on, which must be among the first 48 of an answer's ``tokens``: what was asked for comes before, and a phrase
    fills as much. The last word may be cut off and is dropped."""
    judged = len(text) * JUDGED_TOKENS // tokens if tokens and tokens > JUDGED_TOKENS else len(text)
    own = contents.words
    places = [(run.start(), word) for run in _LETTERS.finditer(plain(text)) for word in _words(run[0])]
    first = next((at for at, word in places if word not in own and at < judged), None)
    if first is None:
        return frozenset()
    window = [word for at, word in places[:-1] if at < first + judged]
    return frozenset(word for word in window if word not in own)


def _words(run: str) -> list[str]:
    """A word long enough to say something; of a script that writes without blanks, every two characters."""
    if ord(max(run)) < _UNSPACED:
        return [run] if len(run) >= LETTERS else []
    return [run[at : at + 2] for at in range(0, len(run) - 1, 2)]


@dataclass(slots=True)
class Origin:
    """The answers of one way to ask. ``control`` answers came to short prompts that were read: what they say besides
    their prompt is the model's own vocabulary, a thinking model's for instance."""

    controls: list[frozenset[str]] = field(default_factory=list, repr=False)
    answers: list[frozenset[str]] = field(default_factory=list, repr=False)
    own: int = 0  # of the check's answers, short ones among them: gave what their own prompt asked for
    others: int = 0  # held something of another request
    _said: Counter[str] = field(default_factory=Counter, repr=False)

    def note(self, words: frozenset[str], *, control: bool) -> None:
        if control:
            self.controls.append(words)
            self._said.update(words)
        else:
            self.answers.append(words)

    def begin(self) -> None:
        """The controls stay, since the model does; the answers of a new check are yet to come."""
        self.answers.clear()
        self.own = self.others = 0

    def is_foreign(self, words: Iterable[str], *, control: bool = False) -> bool:
        """Whether an answer holds words that no control answer (of a control: no other one) said."""
        return sum(self._said[word] <= control for word in words) >= FOREIGN_WORDS

    @property
    def foreign(self) -> int:
        return sum(self.is_foreign(words) for words in self.answers)

    @property
    def foreign_controls(self) -> int:
        return sum(self.is_foreign(words, control=True) for words in self.controls)

    @property
    def talkative(self) -> bool:
        """Whether short answers often say more than they were asked for."""
        more = sum(len(words) >= FOREIGN_WORDS for words in self.controls)
        return more > OFTEN * len(self.controls)

    @property
    def strange(self) -> bool:
        """Whether they often say what no other short answer says: a model that babbles, or customers' text."""
        return self.foreign_controls > OFTEN * len(self.controls)

    @property
    def chance(self) -> float:
        """Fisher's one-sided p that more answers than controls are foreign; 1 where fewer than 30 controls say
        nothing."""
        if len(self.controls) < LEAST_CONTROLS:
            return 1.0
        return fisher_greater(self.foreign, len(self.answers), self.foreign_controls, len(self.controls))


@dataclass(slots=True)
class Provenance:
    """Answers of a run by the way they were asked: models say other things in a chat than in a completion."""

    by_mode: defaultdict[str, Origin] = field(default_factory=lambda: defaultdict(Origin))

    def note(
        self, mode: str, words: frozenset[str], *, control: bool, own: bool = False, traced: bool = False
    ) -> None:
        """An answer: the words that its prompt does not hold, whether it gave what was asked, and whether it held
        something of another request."""
        origin = self.by_mode[mode]
        origin.note(words, control=control)
        origin.own += own and not traced
        origin.others += traced

    def begin(self) -> None:
        """A new check."""
        for origin in self.by_mode.values():
            origin.begin()

    @property
    def exceeding(self) -> dict[str, Origin]:
        """The ways to ask whose answers are foreign beyond chance, the clearest first: one by itself, or all together,
        since a run that asks in four ways has few answers of each."""
        ranked = dict(sorted(self.by_mode.items(), key=lambda item: item[1].chance))
        told = {
            mode: one for mode, one in ranked.items() if one.answers and len(one.controls) >= LEAST_CONTROLS
        }
        tables = [
            (one.foreign, len(one.answers), one.foreign_controls, len(one.controls)) for one in told.values()
        ]
        if stratified_greater(tables) < SIGNIFICANT:
            return {mode: one for mode, one in told.items() if one.foreign}
        return {mode: one for mode, one in told.items() if one.chance < SIGNIFICANT}
