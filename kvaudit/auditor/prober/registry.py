"""Knows everything that a run has put into prompts, and looks for it in every answer of every check.

A check looks for what it planted itself. A stranger's text does not keep to checks: it came back in answers that
were asked for their counts, in headers, in the text of an error.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from kvaudit.auditor.checks.prober_protocol import FACT, MARKER, NONCE, Trace
from kvaudit.auditor.text.markers import Marker, words
from kvaudit.auditor.text.matcher import Match, Matcher, normal_words
from kvaudit.auditor.text.prompts import NONCE_KEY, Contents


@dataclass(frozen=True, slots=True)
class _Planted:
    tenant: str
    contents: Contents


@dataclass(slots=True)
class Registry:
    """Everything live. ``earlier`` are the markers and decoys of runs of the last 30 days."""

    earlier: Iterable[Marker] = ()
    traces: list[Trace] = field(default_factory=list)
    leaks: int = 0  # answers that held a verified trace, since `begin`
    guesses: list[float] = field(default_factory=list)
    """For each word of our list that an answer gave and its prompt did not hold: the chance that a word drawn from the
    list is live under that key. A model that only guesses gives live words about that often."""
    _old: frozenset[tuple[str, ...]] = field(init=False, repr=False)
    _matcher: Matcher = field(default_factory=Matcher, repr=False)
    _by_marker: dict[tuple[str, ...], str] = field(default_factory=dict, repr=False)  # words -> tenant
    _by_key: dict[tuple[str, str], list[_Planted]] = field(
        default_factory=lambda: defaultdict(list), repr=False
    )

    _live: Counter[str] = field(default_factory=Counter, repr=False)  # different words under a key

    def __post_init__(self) -> None:
        self._old = frozenset(marker.words for marker in self.earlier)
        for marker in self.earlier:
            self._add(marker, marker.tenant)

    def plant(self, contents: Contents, tenant: str) -> None:
        """Make what a prompt carries findable; before it is sent."""
        self._add(contents.marker, tenant)
        planted = _Planted(tenant, contents)
        for key, word in _answers(contents):
            self._live[key] += (key, word) not in self._by_key
            self._by_key[key, word].append(planted)

    def live(self, markers: Iterable[Marker]) -> None:
        """Make markers findable that no prompt carries: decoys."""
        for marker in markers:
            self._add(marker, marker.tenant)

    def _add(self, marker: Marker, tenant: str) -> None:
        if marker.words not in self._by_marker:
            self._by_marker[marker.words] = tenant
            self._matcher.add(marker)

    def search(
        self, said: Mapping[str, str], contents: Contents, *, tenant: str, tokens: int
    ) -> tuple[Trace, ...]:
        """What of other requests stands in an answer. ``said``: where -> text. Kept in ``traces`` as well."""
        given: set[tuple[str, str]] = set()
        found = [
            trace
            for where, text in said.items()
            if text
            for trace in (
                *self._markers(text, where, contents, tenant, tokens),
                *self._words(text, where, contents, tenant, tokens, given),
            )
        ]
        self.traces.extend(found)
        self.leaks += any(trace.verified and not trace.decoy for trace in found)
        return tuple(found)

    def begin(self) -> None:
        """A new check: what came back so far belongs to the one before."""
        self.traces.clear()
        self.guesses.clear()
        self.leaks = 0

    def _markers(
        self, text: str, where: str, contents: Contents, tenant: str, tokens: int
    ) -> Iterator[Trace]:
        for match in self._matcher.find(text, own=contents.marker):
            yield self._marker(match, where, tenant, tokens)

    def _words(
        self, text: str, where: str, contents: Contents, tenant: str, tokens: int, given: set[tuple[str, str]]
    ) -> Iterator[Trace]:
        """``given``: (key, word) that the answer has given already. A model that repeats itself guesses once."""
        own = contents.words
        for kind, key, word in _given(text, contents):
            if word in own or word not in _listed() or (key, word) in given:
                continue
            given.add((key, word))
            self.guesses.append(self._live[key] / len(_listed()))
            if not (planted := self._by_key.get((key, word))):
                continue
            yield Trace(kind, where, planted[-1].tenant, tenant, (word,), 1, tokens)

    def _marker(self, match: Match, where: str, tenant: str, tokens: int) -> Trace:
        return Trace(
            MARKER,
            where,
            self._by_marker[match.marker.words],
            tenant,
            match.matched,
            match.run,
            tokens,
            decoy=match.marker.decoy,
            verified=match.hit,
            earlier_run=match.marker.words in self._old,
        )


@cache
def _listed() -> frozenset[str]:
    return frozenset(words())


def _answers(contents: Contents) -> Iterator[tuple[str, str]]:
    """What the prompt says under a key: (key, word)."""
    if contents.tail.nonce is not None:
        yield NONCE_KEY, contents.tail.nonce.word
    for needle in contents.needles:
        yield needle.key, needle.word


def _given(text: str, contents: Contents) -> Iterator[tuple[str, str, str]]:
    """What an answer gives as (kind, key, word): its first word, as the value of what was asked, and whatever follows
    the name of a key."""
    said = normal_words(text)
    if said and contents.tail.nonce is not None and not contents.tail.needles:
        yield NONCE, NONCE_KEY, said[0]
    elif said and len(contents.tail.needles) == 1:
        yield FACT, contents.tail.needles[0].key, said[0]
    for at in range(len(said) - 2):
        name, key = said[at], said[at + 1].upper()
        if name == "code" and key == NONCE_KEY:
            yield NONCE, NONCE_KEY, said[at + 2]
        elif name == "locker" and len(key) == 1:
            yield FACT, key, said[at + 2]
