"""Writes the texts of prompts: frames that advertise a marker, nonce questions, needles.

Every text ends in the beginning of the sentence that answers it, so that base models and bare
copiers continue as well as instructed ones answer (measured on a model that sees three characters:
the nonce said twice before it is asked came back 16 of 16 times, said once 13 of 16).
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvaudit.auditor.text.markers import Draw, Marker, draw_apart, words
from kvaudit.auditor.text.matcher import HIT_RUN, Matcher, normal_words
from kvaudit.auditor.text.wordings import USUAL, Wording

NONCE_KEY = "Q"
BARE = " Nothing is written here."
"""Fills the last page of a prompt that asks for its phrase."""

WINDOW_FRAMES = 4
EARLY_WORDS = 8
NEEDLE_KEYS = tuple(letter for letter in string.ascii_uppercase if letter not in (NONCE_KEY, "I", "O"))


@dataclass(frozen=True, slots=True)
class Frame:
    """One numbered frame of a marker: ``head`` + four digits + ``body``."""

    head: str
    body: str

    def numbered(self, number: int) -> str:
        return f"{self.head}{number % 10_000:04d}{self.body}"


def frame(marker: Marker, wording: Wording = USUAL) -> Frame:
    """The frame that whoever reads these pages continues with the marker (checks.md 4)."""
    return Frame(wording.head, wording.body(str(marker)))


def frames(marker: Marker, wording: Wording = USUAL) -> Iterator[str]:
    """Frames 0000, 0001, ... back to back, without end."""
    shape, number = frame(marker, wording), 0
    while True:
        yield shape.numbered(number)
        number += 1


@dataclass(frozen=True, slots=True)
class Nonce:
    """A fresh word asked at the very end of a prompt. A 200 without it: the end was not read.

    The word is said twice just before it is asked, so it proves that the last page is the prompt's own and nothing
    of the pages before: a model whose other pages are all a stranger's answers it still (`phrase_tail` asks those).
    """

    word: str

    @property
    def tail(self) -> Tail:
        said = f"Code {NONCE_KEY}: {self.word}. "
        return Tail(f" {said}{said}Code {NONCE_KEY}:", nonce=self)

    def answered(self, text: str) -> bool:
        """Whether the answer gives the nonce: near its beginning, or after the key's own name."""
        return _gives(text, self.word, f"code {NONCE_KEY}")


def _gives(text: str, word: str, key: str) -> bool:
    """A word anywhere in a long answer may be chance (12 foreign nouns hold a given one in 0.6 % of
    answers), so it must be among the first 8 words or follow the name of its key."""
    answer = normal_words(text)
    if word in answer[:EARLY_WORDS]:
        return True
    named = normal_words(f"{key} {word}")
    return any(answer[at : at + len(named)] == named for at in range(len(answer)))


def draw_nonce(draw: Draw, *, without: Sequence[str] = ()) -> Nonce:
    """A nonce that cannot be confused with ``without`` (the marker's own words, then the needles')."""
    return Nonce(draw_apart(draw, 1, without)[0])


@dataclass(frozen=True, slots=True)
class Needle:
    """A fact at a depth of a long prompt: ``Locker K: cedar.``, asked with ``Locker K:``."""

    key: str
    word: str
    depth: float  # 0 = beginning, 1 = end

    @property
    def sentence(self) -> str:
        return f" Locker {self.key}: {self.word}. "

    @property
    def question(self) -> str:
        return f" Locker {self.key}:"

    @property
    def tail(self) -> Tail:
        return Tail(self.question, needles=(self,))

    def answered(self, text: str) -> bool:
        """Whether the answer gives this needle's word, by the same rule as for a nonce."""
        return _gives(text, self.word, f"locker {self.key}")


def draw_needles(
    draw: Draw,
    *,
    per_depth: int = 2,
    depths: Sequence[float] = (0, 0.25, 0.5, 0.75, 1),
    without: Sequence[str] = (),
) -> tuple[Needle, ...]:
    """Needles with different letters and words, ``per_depth`` at each depth, in reading order;
    ``without`` holds the marker's words."""
    count = per_depth * len(depths)
    if count > len(NEEDLE_KEYS):
        raise ValueError(f"at most {len(NEEDLE_KEYS)} needles have a letter of their own")
    chosen = draw_apart(draw, count, without)
    keys = list(NEEDLE_KEYS)
    letters = [keys.pop(draw(len(keys))) for _ in range(count)]
    return tuple(
        Needle(letters[index], chosen[index], depth)
        for index, depth in enumerate(depth for depth in depths for _ in range(per_depth))
    )


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a prompt: what it asks. ``nonce`` or ``needles`` are what the answer must give; ``phrase``: the
    prompt's own marker; none of them: the text is only cut off, and whatever follows is the model's choice.

    ``bare`` is how many of the prompt's last tokens hold no phrase, this text among them. ``depth``: the frames stand
    in a window of `WINDOW_FRAMES` there (0 = beginning, 1 = end) and nothing is written elsewhere; None = everywhere.
    """

    text: str = ""
    nonce: Nonce | None = None
    needles: tuple[Needle, ...] = ()
    phrase: bool = False
    bare: int = 0
    depth: float | None = None


LEAST_BARE = 64


def bare_tokens(page: int) -> int:
    """Tokens at the end of a prompt that hold no phrase, at least a page: who reads only these cannot say it."""
    return max(page, LEAST_BARE)


def phrase_tail(draw: Draw, bare: int, wording: Wording = USUAL, depth: float | None = None) -> Tail:
    """Asks for the phrase that the frames before the last ``bare`` tokens repeat: who answers it with the own marker
    read the own pages, and who reads another request's pages says that one's. Never together with a nonce, which a
    model repeats instead (a real one said the stranger's phrase 27 of 27 times, beside a nonce none of 10). Own frames
    everywhere outvote a few pages of a stranger's in the middle; those of a window (``depth``) do not."""
    return Tail(wording.question(draw(10_000)), phrase=True, bare=bare, depth=depth)


@dataclass(frozen=True, slots=True)
class Contents:
    """What one prompt carries, and what its answer is judged against."""

    marker: Marker
    tail: Tail
    needles: tuple[Needle, ...] = ()
    lead: str = ""
    wording: Wording = USUAL

    @property
    def words(self) -> frozenset[str]:
        """Every word of the prompt, lower case."""
        said = (
            frame(self.marker, self.wording).numbered(0),
            BARE,
            self.tail.text,
            self.lead,
            *(n.sentence for n in self.needles),
        )
        return frozenset(word for text in said for word in normal_words(text))

    def answered(self, text: str) -> bool:
        """Whether the answer gives what was asked: the nonce, every needle, or four words of the phrase."""
        if self.tail.nonce is not None:
            return self.tail.nonce.answered(text)
        if self.tail.needles:
            return all(needle.answered(text) for needle in self.tail.needles)
        return self.phrased(text)

    def phrased(self, text: str) -> bool:
        """Whether four words of the own phrase in a row stand in it."""
        return any(match.run >= HIT_RUN for match in Matcher([self.marker]).find(text))


def together(nonce: Nonce, needles: Sequence[Needle]) -> Tail:
    """One question for everything: the keys in order, then the first of them begun. A model that can
    goes on through the list; each value is recognised by the key that it names."""
    said = f"Code {NONCE_KEY}: {nonce.word}. "
    keys = ", ".join(f"Locker {needle.key}" for needle in needles)
    text = f" {said}{said}The list of {keys} and Code {NONCE_KEY}, each with its word.{needles[0].question}"
    return Tail(text, nonce=nonce, needles=tuple(needles))


def draw_leads(draw: Draw, count: int) -> list[str]:
    """Beginnings of prompts: a word that differs in its first letter while letters last, then in the
    word, and a second one, so that two runs hardly ever share more than a first word."""
    listed, letters = words(), list(string.ascii_lowercase)
    chosen: list[str] = []
    while len(chosen) < count:
        initial = letters.pop(draw(len(letters))) if letters else ""
        fitting = [word for word in listed if word.startswith(initial)] or list(listed)
        second = listed[draw(len(listed))]
        chosen.append(f"{fitting[draw(len(fitting))].capitalize()} {second}. ")
    return chosen
