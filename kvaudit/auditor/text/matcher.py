"""Finds markers in answers: runs of consecutive marker words, exact and one edit away; their letters where the blanks
between words are gone or too many; five words in their order with a few others between (two rows that a batch mixes
word by word, sglang#18744), or all six close together in any order.

A run of 4 or more is a hit, 3 is suspicious, less is chance: with 10,000 live markers a run of 4
appears by chance in fewer than one of 10^6 answers of 512 words (methods.md 2.a), five with gaps or six in any order
even more seldom. A marker that came back translated, encoded or by its initials is not found.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvaudit.auditor.text.markers import WORDS_IN_MARKER, Marker
from kvaudit.auditor.text.wordings import WORDINGS

HIT_RUN = 4
SUSPICIOUS_RUN = 3
FUZZY_RUN = 5  # every word within one edit

GARBLED_LOOKS = 50_000
"""Places that the search for garbled runs looks at in one answer. An answer of the length that was asked for
has some thousands; one of a megabyte that repeats our own words would take half a minute. Exact runs are
searched for in the whole of any answer."""

SCATTERED_RUN = 5
GAP = 3  # words from one marker word to the next
CLOSE = 24  # words within which all six count in any order

GLUED_RUN = 4
_GLUED_KEY = 12  # letters by which four words without blanks are looked up; they have 16 and more

_WORD = re.compile(r"[a-z]+")
_NO_LETTER = re.compile(r"[^a-z]+")
_BLANKS = str.maketrans("\u0120\u010a\u2581", "   ")  # how vocabularies write the blank before a word
_INVISIBLE = re.compile("[\u0300-\u036f\u00ad\u200b-\u200f\u2060\ufeff]")


@dataclass(frozen=True, slots=True)
class Match:
    """The longest run of one marker in one answer. ``first`` is the index of its first marker word,
    ``at`` the index of that word among the answer's words."""

    marker: Marker
    run: int
    first: int
    at: int
    fuzzy: bool = False

    @property
    def hit(self) -> bool:
        return self.run >= (FUZZY_RUN if self.fuzzy else HIT_RUN)

    @property
    def suspicious(self) -> bool:
        return not self.hit and self.run >= SUSPICIOUS_RUN

    @property
    def matched(self) -> tuple[str, ...]:
        """The marker words that surfaced: ours, so they may be shown."""
        return self.marker.words[self.first : self.first + self.run]


def plain(text: str) -> str:
    """Lower case, without accents, wide forms and characters that nobody sees."""
    if text.isascii():
        return text.lower()
    return _INVISIBLE.sub("", unicodedata.normalize("NFKD", text.translate(_BLANKS))).lower()


def normal_words(text: str) -> list[str]:
    """Lower-case ASCII words; markup, digits and punctuation only separate."""
    return _WORD.findall(plain(text))


class Matcher:
    """Looks for any of a set of live markers (and decoys) in answers."""

    def __init__(self, markers: Iterable[Marker] = ()) -> None:
        self._starts: dict[tuple[str, str], list[tuple[Marker, int]]] = defaultdict(list)
        self._words: dict[str, list[tuple[Marker, int]]] = defaultdict(list)
        self._glued: dict[str, list[tuple[Marker, int, str]]] = defaultdict(list)
        self._count = 0
        for marker in markers:
            self.add(marker)

    def add(self, marker: Marker) -> None:
        """Make a marker live; add it before its request is sent."""
        self._count += 1
        for index, word in enumerate(marker.words):
            self._words[word].append((marker, index))
        for first in range(len(marker.words) - 1):
            self._starts[marker.words[first], marker.words[first + 1]].append((marker, first))
        for first in range(len(marker.words) - GLUED_RUN + 1):
            joined = "".join(marker.words[first : first + GLUED_RUN])
            self._glued[joined[:_GLUED_KEY]].append((marker, first, joined))

    def __len__(self) -> int:
        return self._count

    def find(self, text: str, *, own: Marker | None = None) -> list[Match]:
        """The longest run of every marker other than ``own`` that reaches 3 words (5 for garbled
        ones), longest first. ``own`` is the marker that this very request carried."""
        said = plain(text)
        answer = _WORD.findall(said)
        longest: dict[int, Match] = {}
        for at in range(len(answer) - 1):
            for marker, first in self._starts.get((answer[at], answer[at + 1]), ()):
                if own is not None and marker.words == own.words:
                    continue
                if first and at and marker.words[first - 1] == answer[at - 1]:
                    continue  # the middle of a run that has been measured from its beginning
                run = _run(marker.words, first, answer, at)
                known = longest.get(id(marker))
                if run >= SUSPICIOUS_RUN and (known is None or run > known.run):
                    longest[id(marker)] = Match(marker, run, first, at)
        found = list(longest.values())
        places = self._places(answer, own)
        for search in (self._garbled(answer, places), self._scattered(places), self._in_letters(said, own)):
            known_markers = {id(match.marker) for match in found if match.hit}
            found = [
                *found,
                *(match for match in search if id(match.marker) not in known_markers),
            ]
        return sorted(found, key=lambda match: (not match.hit, -match.run, match.at))

    def _looked_up(self, word: str) -> Sequence[tuple[Marker, int]]:
        found = self._words.get(word)
        if found is None and word.endswith("s"):
            found = self._words.get(word[:-1])
        return found or ()

    def _places(self, answer: list[str], own: Marker | None) -> list[tuple[int, Marker, int]]:
        """Where a word of a marker other than ``own`` stands: (place in the answer, marker, index of its word)."""
        places: list[tuple[int, Marker, int]] = []
        left = GARBLED_LOOKS
        for at, word in enumerate(answer):
            found = self._looked_up(word)
            left -= len(found)
            if left < 0:
                break
            places += (
                (at, marker, index) for marker, index in found if own is None or marker.words != own.words
            )
        return places

    def _scattered(self, found: Iterable[tuple[int, Marker, int]]) -> Iterable[Match]:
        """Markers of which five words stand in their order with at most two others between, or all six close together:
        one match each."""
        met: dict[int, list[tuple[int, int]]] = defaultdict(list)
        markers: dict[int, Marker] = {}
        for at, marker, index in found:
            markers[id(marker)] = marker
            met[id(marker)].append((at, index))
        for key, places in met.items():
            if len({index for _, index in places}) < SCATTERED_RUN:
                continue
            run = max(_in_order(places), _together(places))
            if run >= SCATTERED_RUN:
                yield Match(markers[key], run, 0, places[0][0], fuzzy=True)

    def _in_letters(self, said: str, own: Marker | None) -> Iterable[Match]:
        """Four words of a marker by their letters alone: written as one, letter by letter, or cut by a tokenizer."""
        letters = _NO_LETTER.sub("", said)
        seen: set[int] = set()
        for at in range(len(letters) - _GLUED_KEY):
            for marker, first, joined in self._glued.get(letters[at : at + _GLUED_KEY], ()):
                if id(marker) in seen or (own is not None and marker.words == own.words):
                    continue
                if letters.startswith(joined, at):
                    seen.add(id(marker))
                    yield Match(marker, GLUED_RUN, first, at)

    def _garbled(self, answer: list[str], places: Iterable[tuple[int, Marker, int]]) -> Iterable[Match]:
        """Runs of 5 or more whose words are each at most one edit off, around one word that came
        through exactly: the cost grows with the markers that share a word, not with all of them."""
        seen: set[int] = set()
        for at, marker, index in places:
            if id(marker) in seen:
                continue
            back = _fuzzy_run(
                marker.words[index::-1],
                answer[at : at - len(marker.words) if at >= len(marker.words) else None : -1],
            )
            first, start = index - back + 1, at - back + 1
            run = back - 1 + _fuzzy_run(marker.words[index:], answer[at : at + len(marker.words)])
            if run >= FUZZY_RUN:
                seen.add(id(marker))
                yield Match(marker, run, first, start, fuzzy=True)


def _in_order(places: Sequence[tuple[int, int]]) -> int:
    """The longest chain of (place, index) whose indices rise and whose places are at most `GAP` words apart."""
    best = [1] * len(places)
    for late, (at, index) in enumerate(places):
        for early in range(late - 1, -1, -1):
            before, lower = places[early]
            if at - before > GAP:
                break
            if lower < index and before < at:
                best[late] = max(best[late], best[early] + 1)
    return max(best)


def _together(places: Sequence[tuple[int, int]]) -> int:
    """6 where all words of a marker stand within `CLOSE` words, in whatever order, else 0."""
    for start, (at, _) in enumerate(places):
        near = {index for place, index in places[start : start + 2 * CLOSE] if place - at < CLOSE}
        if len(near) == WORDS_IN_MARKER:
            return WORDS_IN_MARKER
    return 0


_FRAME = re.compile(rf"\b(?:{'|'.join(wording.noun for wording in WORDINGS)})\s+(\d{{1,4}})\b", re.IGNORECASE)


def frame_numbers(text: str, marker: Marker) -> tuple[int, ...]:
    """Numbers of the planted frames that an answer continues, in order: those whose text holds three
    words of the marker in a row. A piece before the first number belongs to the frame before it. Numbers
    count modulo 10,000."""
    pieces = _FRAME.split(text)
    found = [
        int(number) for number, said in zip(pieces[1::2], pieces[2::2], strict=True) if _holds(said, marker)
    ]
    if len(pieces) > 1 and _holds(pieces[0], marker):
        found.insert(0, (int(pieces[1]) - 1) % 10_000)
    return tuple(dict.fromkeys(found))


def _holds(text: str, marker: Marker) -> bool:
    answer = normal_words(text)
    return any(
        answer[at] == word and _run(marker.words, first, answer, at) >= SUSPICIOUS_RUN
        for at in range(len(answer))
        for first, word in enumerate(marker.words)
    )


def _run(marker: tuple[str, ...], first: int, answer: list[str], at: int) -> int:
    run = 0
    while first + run < len(marker) and at + run < len(answer) and marker[first + run] == answer[at + run]:
        run += 1
    return run


def _fuzzy_run(marker: Sequence[str], answer: Sequence[str]) -> int:
    run = 0
    for ours, theirs in zip(marker, answer, strict=False):
        if not within_one_edit(ours, theirs):
            break
        run += 1
    return run


def within_one_edit(first: str, second: str) -> bool:
    """Equal, or one insertion, deletion or substitution apart."""
    if first == second:
        return True
    if abs(len(first) - len(second)) > 1:
        return False
    short, long = sorted((first, second), key=len)
    for index, letter in enumerate(short):
        if letter != long[index]:
            rest = short[index + 1 :] if len(short) == len(long) else short[index:]
            return rest == long[index + 1 :]
    return True
