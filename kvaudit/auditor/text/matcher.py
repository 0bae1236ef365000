"""Finds markers in answers: runs of consecutive marker words, exact and one edit away.

A run of 4 or more is a hit, 3 is suspicious, less is chance: with 10,000 live markers a run of 4
appears by chance in fewer than one of 10^6 answers of 512 words (methods.md 2.a).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvaudit.auditor.text.markers import Marker
from kvaudit.auditor.text.wordings import WORDINGS

HIT_RUN = 4
SUSPICIOUS_RUN = 3
FUZZY_RUN = 5  # every word within one edit

GARBLED_LOOKS = 50_000
"""Places that the search for garbled runs looks at in one answer. An answer of the length that was asked for
has some thousands; one of a megabyte that repeats our own words would take half a minute. Exact runs are
searched for in the whole of any answer."""

_WORD = re.compile(r"[a-z]+")


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


def normal_words(text: str) -> list[str]:
    """Lower-case ASCII words; markup, digits and punctuation only separate."""
    return _WORD.findall(text.lower())


class Matcher:
    """Looks for any of a set of live markers (and decoys) in answers."""

    def __init__(self, markers: Iterable[Marker] = ()) -> None:
        self._starts: dict[tuple[str, str], list[tuple[Marker, int]]] = defaultdict(list)
        self._words: dict[str, list[tuple[Marker, int]]] = defaultdict(list)
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

    def __len__(self) -> int:
        return self._count

    def find(self, text: str, *, own: Marker | None = None) -> list[Match]:
        """The longest run of every marker other than ``own`` that reaches 3 words (5 for garbled
        ones), longest first. ``own`` is the marker that this very request carried."""
        answer = normal_words(text)
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
        found += [match for match in self._garbled(answer, own) if id(match.marker) not in longest]
        return sorted(found, key=lambda match: (-match.run, match.at))

    def _garbled(self, answer: list[str], own: Marker | None) -> Iterable[Match]:
        """Runs of 5 or more whose words are each at most one edit off, around one word that came
        through exactly: the cost grows with the markers that share a word, not with all of them."""
        seen: set[int] = set()
        left = GARBLED_LOOKS
        for at, word in enumerate(answer):
            found = self._words.get(word, ())
            left -= len(found)
            if left < 0:
                return
            for marker, index in found:
                if id(marker) in seen or (own is not None and marker.words == own.words):
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
